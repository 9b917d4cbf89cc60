// Package safetensors reads models as the Hugging Face hub stores them: a directory with weights in the
// safetensors format and JSON files beside them. The format is specified in
// github.com/huggingface/safetensors, README.md ("Format").
//
//   - header: the JSON object at the beginning of a file that gives each tensor's dtype, shape and place.
//   - dtype: the format's name for a number format, such as "BF16".
//   - index: model.safetensors.index.json, which says which of several files, the shards, has which tensor.
//
// Files are mapped, and their headers checked as strictly as the reference does: tensors must fill the
// file without gaps or overlaps. A tensor whose dtype is not supported is an error only when that tensor
// is asked for.
package safetensors
