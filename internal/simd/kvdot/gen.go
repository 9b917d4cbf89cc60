package kvdot

//go:generate sh -c "cd _asm && go run . -level avx2 -out ../zfold_avx2_amd64.s -stubs ../zfold_avx2_amd64.go -pkg kvdot"
//go:generate sh -c "cd _asm && go run . -level avx512 -out ../zfold_avx512_amd64.s -stubs ../zfold_avx512_amd64.go -pkg kvdot"
