package quant

import "math"

// Candidate scales tried per sub-block, and how far the first lies from the one that maps the
// weights' range onto the code range exactly, in codes. Letting the range overhang the codes by up to
// one code clips the extremes and makes every other step finer.
const (
	searchSteps = 20
	searchFrom  = -1.0
	searchStep  = 0.1
)

// quantizeQ4_K is the inverse of dequantizeQ4_K.
func quantizeQ4_K(b []byte, w []float32) {
	var codes [superLen]uint8
	quantizeScaleMin(b, w, &codes, 15)
	for k := range 4 {
		for i := range 32 {
			b[16+32*k+i] = codes[64*k+i] | codes[64*k+32+i]<<4
		}
	}
}

// quantizeQ5_K is the inverse of dequantizeQ5_K.
func quantizeQ5_K(b []byte, w []float32) {
	var codes [superLen]uint8
	quantizeScaleMin(b, w, &codes, 31)
	fifth := b[16:48]
	clear(fifth)
	for k := range 4 {
		for i := range 32 {
			lo, hi := codes[64*k+i], codes[64*k+32+i]
			b[48+32*k+i] = lo&15 | hi<<4
			fifth[i] |= lo>>4<<(2*k) | hi>>4<<(2*k+1)
		}
	}
}

// quantizeScaleMin chooses the scales and mins of a super-block of eight sub-blocks of 32 with codes
// 0..top, writes its first 16 bytes to b and the codes of w to codes.
func quantizeScaleMin(b []byte, w []float32, codes *[superLen]uint8, top int32) {
	var scale, bottom [8]float32
	var maxScale, maxMin float32
	for s := range 8 {
		scale[s], bottom[s] = searchScaleMin((*[32]float32)(w[32*s:]), top)
		maxScale, maxMin = max(maxScale, scale[s]), max(maxMin, bottom[s])
	}
	putHalf(b[0:2], maxScale/63)
	putHalf(b[2:4], maxMin/63)
	d, dmin := half(b[0:2]), half(b[2:4]) // as a reader will see them
	var scales, mins [8]uint8
	for s := range 8 {
		scales[s] = clampCode(scale[s]*inverse(d)+0.5, 63)
		mins[s] = clampCode(bottom[s]*inverse(dmin)+0.5, 63)
		ds, m := d*float32(scales[s]), dmin*float32(mins[s])
		inv := inverse(ds)
		for i, v := range w[32*s : 32*s+32] {
			codes[32*s+i] = clampCode((v+m)*inv+0.5, top)
		}
	}
	packScales((*[12]byte)(b[4:16]), &scales, &mins)
}

// packScales is the inverse of unpackScales.
func packScales(p *[12]byte, scales, mins *[8]uint8) {
	for i := range 4 {
		p[i] = scales[i] | scales[4+i]>>4<<6
		p[4+i] = mins[i] | mins[4+i]>>4<<6
		p[8+i] = scales[4+i]&15 | mins[4+i]<<4
	}
}

// searchScaleMin returns a scale and a min (bottom) ≥ 0 of small error Σ imp·(scale·code - min - w)² over codes
// 0..top. Each candidate step rounds the weights to codes; given the codes, regress knows the best
// scale and min.
func searchScaleMin(w *[32]float32, top int32) (scale, bottom float32) {
	lo, hi := extremes(w[:])
	lo = min(lo, 0) // code 0 stands for -min, which is never positive
	if !(hi > lo) {
		return 0, -lo
	}
	imp := importance(w)
	best := math.Inf(1)
	for t := -1; t <= searchSteps; t++ {
		span := float64(top) // t = -1: the whole range on all codes
		if t >= 0 {
			span += searchFrom + searchStep*float64(t)
		}
		inv := span / (float64(hi) - float64(lo))
		var codes [32]float64
		for i, v := range w {
			codes[i] = float64(clampCode(float32((float64(v)-float64(lo))*inv+0.5), top))
		}
		s, m, err := regress(w, &imp, &codes)
		if err < best {
			best, scale, bottom = err, float32(s), float32(m)
		}
	}
	return scale, bottom
}

// importance weighs the error of each weight by its magnitude plus the block's root mean square: large
// weights matter more, small ones still count.
func importance(w *[32]float32) (imp [32]float64) {
	var sum float64
	for _, v := range w {
		sum += float64(v) * float64(v)
	}
	rms := math.Sqrt(sum / 32)
	for i, v := range w {
		imp[i] = rms + math.Abs(float64(v))
	}
	return imp
}

// regress solves for the scale ≥ 0 and min ≥ 0 of least error given the codes, by weighted linear
// regression, and returns that error. Where the free solution has a negative min or the codes are all
// equal, the line goes through the origin.
func regress(w *[32]float32, imp, codes *[32]float64) (scale, bottom, err float64) {
	var n, c1, c2, w1, cw float64 // Σ imp·{1, code, code², w, code·w}
	for i, v := range w {
		p, c, x := imp[i], codes[i], float64(v)
		n += p
		c1 += p * c
		c2 += p * c * c
		w1 += p * x
		cw += p * c * x
	}
	if det := n*c2 - c1*c1; det > 0 {
		scale, bottom = (n*cw-c1*w1)/det, (c1*cw-c2*w1)/det
	}
	if (bottom < 0 || scale <= 0) && c2 > 0 {
		scale, bottom = math.Max(cw/c2, 0), 0
	}
	for i, v := range w {
		e := scale*codes[i] - bottom - float64(v)
		err += imp[i] * e * e
	}
	return scale, bottom, err
}

// quantizeQ6_K is the inverse of dequantizeQ6_K.
func quantizeQ6_K(b []byte, w []float32) {
	var scale [16]float32
	for s := range scale {
		scale[s] = searchScale((*[16]float32)(w[16*s:]))
	}
	// The scale of largest magnitude becomes -128, the end of int8 that reaches farther.
	putHalf(b[208:210], farthest(scale[:])/-128)
	d := half(b[208:210])
	var codes [superLen]uint8
	for s, v := range scale {
		is := roundAway(v * inverse(d))
		b[192+s] = uint8(int8(is))
		inv := inverse(d * float32(is))
		for i, v := range w[16*s : 16*s+16] {
			codes[16*s+i] = clampCode(v*inv+32.5, 63)
		}
	}
	for h := range 2 {
		rows := (*[128]uint8)(codes[128*h:])
		for i := range 32 {
			r0, r1, r2, r3 := rows[i], rows[32+i], rows[64+i], rows[96+i]
			b[64*h+i] = r0&15 | r2<<4
			b[64*h+32+i] = r1&15 | r3<<4
			b[128+32*h+i] = r0>>4 | r1>>4<<2 | r2>>4<<4 | r3>>4<<6
		}
	}
}

// searchScale returns a scale, of either sign, of small error Σ w²·(scale·code - w)² over codes
// -32..31. Candidates map the weight of largest magnitude near -32.
func searchScale(w *[16]float32) (scale float32) {
	far := farthest(w[:])
	if far == 0 {
		return 0
	}
	best := -1.0
	for t := range searchSteps + 1 {
		inv := -(32 + searchFrom + searchStep*float64(t)) / float64(far)
		var c2, cw float64 // Σ w²·{code², code·w}
		for _, v := range w {
			x := float64(v)
			c := math.Min(math.Max(math.Round(x*inv), -32), 31)
			c2 += x * x * c * c
			cw += x * x * c * x
		}
		// With the best scale cw/c2 the error is Σ w⁴ - cw²/c2.
		if c2 > 0 && cw*cw/c2 > best {
			best, scale = cw*cw/c2, float32(cw/c2)
		}
	}
	return scale
}
