// Package sample chooses the next token from a row of logits.
//
// The steps and their order are those of vLLM's sampler (docs.vllm.ai, vllm.v1.sample.sampler.Sampler), so that
// a request means the same here as on such a server:
//
//  1. Log-probabilities, if asked for, of the logits as they came.
//  2. Logit bias: added to the logit of a token.
//  3. Penalties, on tokens of the output only, never of the prompt (a long prompt holds most words of its
//     answer): repetition divides a positive logit and multiplies a negative one (Keskar et al., "CTRL",
//     2019, §4.1), frequency subtracts per occurrence, presence once.
//  4. Temperature 0: the largest logit wins. Else logits are divided by the temperature.
//  5. Min-p: tokens less likely than MinP times the likeliest go (Nguyen et al., "Turning Up the Heat:
//     Min-p Sampling", ICLR 2025).
//  6. Top-k: the K likeliest stay.
//  7. Top-p: of these, the fewest whose probabilities, taken among these, sum to at least TopP (nucleus
//     sampling; Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020).
//  8. One token is drawn from what is left.
//
// llama.cpp by default applies the temperature last, so top-p and min-p there cut the distribution at
// temperature 1: with the same numbers it keeps fewer tokens when the temperature is above 1 and more below.
//
// Tokens are ranked by logit, equal logits by id, the lower first. Each filter keeps a beginning of that
// ranking, so the three of them together are one cut, and no step sorts the vocabulary.
//
// # Seeds
//
// The random number of output token i is a pure function of (Seed, i): Philox4x32-10 (Salmon et al., "Parallel
// Random Numbers: As Easy as 1, 2, 3", SC 2011) with the seed as its key and i as its counter. A request draws
// the same numbers alone, in any batch, and after it was preempted and resumed.
//
// # Logits
//
// -Inf means that a token is impossible, and it is never chosen, whatever the bias. NaN and +Inf are errors
// (ErrLogit), a row of nothing but -Inf is one too (ErrNoToken).
package sample
