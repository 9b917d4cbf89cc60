// Package testkit is what tests of several packages share: tolerances that are derived, comparisons that
// name the worst element, buffers that notice an access out of bounds, logged seeds, golden files and the
// models that scripts/fetch_models.sh brings. It imports the standard library only, so any test may use it.
package testkit
