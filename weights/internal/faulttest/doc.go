// Package faulttest helps tests that let a mapped file be truncated.
package faulttest
