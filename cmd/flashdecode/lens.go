package main

import (
	"errors"
	"strconv"
	"strings"
)

// mostTokens bounds a length on the command line.
const mostTokens = 1 << 30

// parseTokens reads a number of tokens: 512, 8k (8,192) or 1m.
func parseTokens(s string) (int, error) {
	digits, unit := s, 1
	switch {
	case strings.HasSuffix(strings.ToLower(s), "k"):
		digits, unit = s[:len(s)-1], 1<<10
	case strings.HasSuffix(strings.ToLower(s), "m"):
		digits, unit = s[:len(s)-1], 1<<20
	}
	n, err := strconv.Atoi(digits)
	switch {
	case errors.Is(err, strconv.ErrRange) && digits[0] != '-' || err == nil && n > mostTokens/unit:
		return 0, usagef("%s tokens are too many: want at most %d", s, mostTokens)
	case err != nil || n < 0:
		return 0, usagef("%q is not a number of tokens such as 512, 8k or 1m", s)
	}
	return n * unit, nil
}

// parseBatch reads the lengths of a batch's sequences, separated by sep: "32k+512x7" is one of 32,768 tokens and
// seven of 512.
func parseBatch(s, sep string) (lens []int, err error) {
	const most = 1 << 16
	for _, part := range strings.Split(s, sep) {
		length, times, repeated := strings.Cut(strings.TrimSpace(part), "x")
		n, err := parseTokens(length)
		if err != nil {
			return nil, err
		}
		count := 1
		if repeated {
			if count, err = strconv.Atoi(times); err != nil && !errors.Is(err, strconv.ErrRange) || count < 1 {
				return nil, usagef("%q: want a length, x and how many of it", part)
			}
		}
		if count > most-len(lens) {
			return nil, usagef("%q are more than %d sequences", s, most)
		}
		for range count {
			lens = append(lens, n)
		}
	}
	return lens, nil
}

// parseList reads several numbers of tokens, separated by commas.
func parseList(flag string, values []string) ([]int, error) {
	list := make([]int, len(values))
	for i, v := range values {
		n, err := parseTokens(strings.TrimSpace(v))
		if err != nil {
			return nil, badFlag(flag, err)
		}
		list[i] = n
	}
	return list, nil
}
