package qgemm

//go:generate sh -c "cd _asm && go run . -part tile512 -out ../ztile512_amd64.s -stubs ../ztile512_amd64.go -pkg qgemm"
