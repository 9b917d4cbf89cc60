package qgemm

//go:generate sh -c "cd _asm && go run . -part tile512 -out ../ztile512_amd64.s -stubs ../ztile512_amd64.go -pkg qgemm"
//go:generate sh -c "cd _asm && go run . -part pack -out ../zpack_amd64.s -stubs ../zpack_amd64.go -pkg qgemm"
//go:generate sh -c "cd _asm && go run . -part acts -out ../zacts_amd64.s -stubs ../zacts_amd64.go -pkg qgemm"
//go:generate sh -c "cd _asm && go run . -part tile2 -out ../ztile2_amd64.s -stubs ../ztile2_amd64.go -pkg qgemm"
