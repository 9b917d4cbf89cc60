// Package lint holds the repository's rules as tests: which package may import which, how long files and
// functions may be, what a generated file looks like, that documents name symbols and modules that exist.
// It has no code besides.
//
// A rule is a function from source to violations, so that each also has a test that sees it fail. What is
// exempt, and why, stands in exempt.txt.
package lint
