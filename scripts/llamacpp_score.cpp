// Scores token sequences with llama.cpp under teacher forcing: the peer's own distance from float32.
//
// usage: llamacpp_score MODEL.gguf THREADS FA(0|1) KV(f16|f32|q8_0) STEP [LAST LOGITS.f32] < sequences > scores
//
// A line of input is FROM followed by the ids of one sequence, all separated by blanks. A line of output holds
// the natural log-probabilities of ids FROM, FROM+1, … given everything before them. With LOGITS the logits
// behind the last LAST of them are appended to that file (float32, [LAST, vocabulary] a sequence). STEP is how
// many tokens one llama_decode gets from FROM-1 on: 512 takes the prompt path, 1 the decoding path (what lies
// before goes in calls of 512). The work is done in double from the logits on: only llama.cpp's error shows.
#include "llama.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static void die(const char *what) { fprintf(stderr, "llamacpp_score: %s\n", what); exit(1); }

static double log_prob(const float *logits, int vocabulary, int id) {
    double top = *std::max_element(logits, logits + vocabulary), sum = 0;
    for (int i = 0; i < vocabulary; i++) sum += std::exp(logits[i] - top);
    return logits[id] - top - std::log(sum);
}

int main(int argc, char **argv) {
    if (argc < 6) die("usage: llamacpp_score MODEL THREADS FA KV STEP [LAST LOGITS] < sequences");
    const int threads = atoi(argv[2]), step = atoi(argv[5]), last = argc > 7 ? atoi(argv[6]) : 0;
    const std::string kv = argv[4];
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) die("cannot load the model");
    auto p = llama_context_default_params();
    p.n_ctx = 4096;
    p.n_batch = p.n_ubatch = 512;
    p.n_threads = p.n_threads_batch = threads;
    p.type_k = p.type_v = kv == "f32" ? GGML_TYPE_F32 : kv == "q8_0" ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    p.flash_attn_type = atoi(argv[3]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *ctx = llama_init_from_model(model, p);
    if (!ctx) die("cannot make a context");
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE *out = argc > 7 ? fopen(argv[7], "wb") : nullptr;
    if (argc > 7 && !out) die("cannot write the logits file");
    llama_batch batch = llama_batch_init(512, 0, 1);

    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        int from, id;
        std::vector<llama_token> ids;
        if (!(in >> from)) continue;
        while (in >> id) ids.push_back(id);
        if (from < 1 || from >= (int) ids.size() || ids.size() > p.n_ctx) die("a sequence is too long, or FROM is outside it");
        llama_memory_clear(llama_get_memory(ctx), true);
        // the last id is only predicted, never fed
        for (int at = 0, n; at < (int) ids.size() - 1; at += n) {
            n = at < from - 1 && step < 512 ? std::min(512, from - 1 - at) : std::min<int>({step, 512, (int) ids.size() - 1 - at});
            batch.n_tokens = n;
            for (int i = 0; i < n; i++) {
                batch.token[i] = ids[at + i];
                batch.pos[i] = at + i;
                batch.n_seq_id[i] = 1;
                batch.seq_id[i][0] = 0;
                batch.logits[i] = at + i >= from - 1;
            }
            if (llama_decode(ctx, batch)) die("llama_decode failed");
            for (int i = 0; i < n; i++) {
                if (!batch.logits[i]) continue;
                const float *logits = llama_get_logits_ith(ctx, i);
                printf("%.7f ", log_prob(logits, vocabulary, ids[at + i + 1]));
                const bool kept = out && at + i + 1 >= (int) ids.size() - last;
                if (kept && fwrite(logits, sizeof(float), vocabulary, out) != (size_t) vocabulary) die("disk full");
            }
        }
        printf("\n");
        fflush(stdout);
        if (out) fflush(out);
    }
    if (out && fclose(out)) die("disk full");
    llama_batch_free(batch);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
