package sample

import "math"

// negligible is where expNeg gives up: e^-64 is 2^-92, so even 2^31 tokens that far below the likeliest one add
// less to the sum of all weights than its rounding error.
const negligible = 64

// expNeg returns e^-d for d ≥ 0, to a relative error of 1e-14, and 0 beyond negligible. It is worth its lines
// because a row of 262,144 logits needs as many: 0.6 of math.Exp's time (go test -bench Exp ./sample).
func expNeg(d float64) float64 {
	if !(d <= negligible) {
		return 0
	}
	// d = n·ln2/32 + r with |r| ≤ ln2/64, so that e^-d = 2^(-n/32)·e^-r.
	n := int(d*(32/math.Ln2) + 0.5)
	r := d - float64(n)*(math.Ln2/32)
	e := 1 - r*(1-r*(1.0/2)*(1-r*(1.0/3)*(1-r*(1.0/4)*(1-r*(1.0/5)))))
	return e * exp2Part[-n&31] * math.Float64frombits(uint64(1023+(-n>>5))<<52)
}

// exp2Part is 2^(i/32).
var exp2Part = [32]float64{
	1.0, 1.0218971486541166, 1.0442737824274138, 1.0671404006768237,
	1.0905077326652577, 1.1143867425958924, 1.1387886347566916, 1.1637248587775775,
	1.189207115002721, 1.215247359980469, 1.241857812073484, 1.2690509571917332,
	1.2968395546510096, 1.3252366431597413, 1.3542555469368927, 1.383909881963832,
	1.4142135623730951, 1.4451808069770467, 1.4768261459394993, 1.5091644275934228,
	1.5422108254079407, 1.5759808451078865, 1.6104903319492543, 1.645755478153965,
	1.681792830507429, 1.718619298122478, 1.7562521603732995, 1.7947090750031072,
	1.8340080864093424, 1.8741676341103, 1.9152065613971474, 1.9571441241754002,
}
