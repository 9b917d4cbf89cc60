package tokenizer

// matchGPT2 is the expression of GPT-2 and of tokenizer.json's ByteLevel:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func matchGPT2(s string, i int) int {
	r, n := at(s, i)
	if r == '\'' {
		if end := contraction(s, i, false); end > i {
			return end
		}
	}
	body := i
	if r == ' ' {
		body = i + n
		r, _ = at(s, body)
	}
	switch {
	case isL(r):
		return run(s, body, isL)
	case isN(r):
		return run(s, body, isN)
	case isOther(r):
		return run(s, body, isOther)
	}
	return matchSpace(s, i, false)
}

// matchCL100K is the expression of GPT-4, Llama 3 (digits = 3) and Qwen2 (digits = 1):
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|
//	\s*[\r\n]+|\s+(?!\S)|\s+
func matchCL100K(s string, i, digits int) int {
	r, n := at(s, i)
	if r == '\'' {
		if end := contraction(s, i, true); end > i {
			return end
		}
	}
	switch {
	case isL(r):
		return run(s, i, isL)
	case isN(r):
		return runMax(s, i, digits, isN)
	case r != '\r' && r != '\n':
		if end := run(s, i+n, isL); end > i+n {
			return end
		}
	}
	if end := matchOther(s, i, isLineBreak); end > i {
		return end
	}
	return matchSpace(s, i, true)
}

func matchCL100K1(s string, i int) int { return matchCL100K(s, i, 1) }
func matchCL100K3(s string, i int) int { return matchCL100K(s, i, 3) }

// matchO200K is the expression of GPT-4o and Llama 4:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//	\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func matchO200K(s string, i int) int {
	if end := matchCasedWord(s, i); end > i {
		return contraction(s, end, true)
	}
	return matchO200KTail(s, i, 3)
}

// matchTekken is the expression of Mistral's Tekken: matchO200K's without contractions, with \p{N} for \p{N}{1,3}.
func matchTekken(s string, i int) int {
	if end := matchCasedWord(s, i); end > i {
		return end
	}
	return matchO200KTail(s, i, 1)
}

func matchO200KTail(s string, i, digits int) int {
	if end := runMax(s, i, digits, isN); end > i {
		return end
	}
	if end := matchOther(s, i, isLineBreakOrSlash); end > i {
		return end
	}
	return matchSpace(s, i, true)
}

// matchCasedWord is P?U*L+|P?U+L* with P = [^\r\n\p{L}\p{N}], U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}],
// L = [\p{Ll}\p{Lm}\p{Lo}\p{M}], or i. A mark is in all three, so P may have to give it back.
func matchCasedWord(s string, i int) int {
	r, n := at(s, i)
	bare := i
	if n > 0 && r != '\r' && r != '\n' && !isL(r) && !isN(r) {
		bare = i + n
	}
	if end := matchUpperLower(s, bare); end > bare {
		return end
	}
	if bare > i {
		if end := matchUpperLower(s, i); end > i {
			return end
		}
	}
	if end := run(s, bare, isUpperish); end > bare {
		return run(s, end, isLowerish)
	}
	if end := run(s, i, isUpperish); end > i {
		return run(s, end, isLowerish)
	}
	return i
}

// matchUpperLower is U*L+, or i. U* takes all it can; if no L follows, it gives back up to the last character that is in
// both classes.
func matchUpperLower(s string, i int) int {
	giveBack := i // behind the last character in both classes
	j := i
	for {
		r, n := at(s, j)
		if !isUpperish(r) {
			break
		}
		j += n
		if isUncased(r) {
			giveBack = j
		}
	}
	if end := run(s, j, isLowerish); end > j {
		return end
	}
	return giveBack
}

// matchOther is ` ?[^\s\p{L}\p{N}]+T*` with T the class trail, or i.
func matchOther(s string, i int, trail func(rune) bool) int {
	body := i
	if body < len(s) && s[body] == ' ' {
		body++
	}
	end := run(s, body, isOther)
	if end == body {
		return i
	}
	return run(s, end, trail)
}

// matchSpace is \s+(?!\S)|\s+, behind \s*[\r\n]+ if breaks is set.
func matchSpace(s string, i int, breaks bool) int {
	end, last, broken := i, i, -1
	for {
		r, n := at(s, end)
		if !isSpace(r) {
			break
		}
		last = end
		end += n
		if isLineBreak(r) {
			broken = end
		}
	}
	switch {
	case breaks && broken > 0:
		return broken
	case end < len(s) && last > i:
		return last // the last space belongs to the next word
	}
	return orNone(i, end)
}

func isLineBreak(r rune) bool        { return r == '\r' || r == '\n' }
func isLineBreakOrSlash(r rune) bool { return r == '\r' || r == '\n' || r == '/' }

// contraction returns the end of 's|'t|'re|'ve|'m|'ll|'d at s[i], or i. With fold, case does not matter; Unicode folds
// U+017F "ſ" to s, too.
func contraction(s string, i int, fold bool) int {
	if i >= len(s) || s[i] != '\'' {
		return i
	}
	a, n := at(s, i+1)
	b, m := at(s, i+1+n)
	if fold {
		a, b = foldASCII(a), foldASCII(b)
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return i + 1 + n
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return i + 1 + n + m
	}
	return i
}

func foldASCII(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	case r == 'ſ':
		return 's'
	}
	return r
}

// matchDigit is \p{N}, tokenizer.json's Digits with individual_digits.
func matchDigit(s string, i int) int { return orNone(i, runMax(s, i, 1, isN)) }

// matchDigits3 is \p{N}{1,3}.
func matchDigits3(s string, i int) int { return orNone(i, runMax(s, i, 3, isN)) }

// matchNumber is \p{N}+, tokenizer.json's Digits without individual_digits.
func matchNumber(s string, i int) int { return orNone(i, run(s, i, isN)) }

// matchASCIIDigits3 is [0-9][0-9][0-9].
func matchASCIIDigits3(s string, i int) int {
	end := runMax(s, i, 3, func(r rune) bool { return r >= '0' && r <= '9' })
	if end < i+3 {
		return -1
	}
	return end
}

// matchPunctuation is [\p{P}\$\+<=>\^~\|]+.
func matchPunctuation(s string, i int) int {
	return orNone(i, run(s, i, func(r rune) bool {
		switch r {
		case '$', '+', '<', '=', '>', '^', '~', '|':
			return true
		}
		return isP(r)
	}))
}
