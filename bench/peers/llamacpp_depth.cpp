// Times llama.cpp at a row of depths of context, with llama-bench's own calls (llama_decode of random tokens,
// then llama_synchronize) and llama-bench's keys in the output, one JSON object a line.
//
// usage: llamacpp_depth MODEL THREADS FA(0|1) KV(f16|q8_0|f32) PROMPT GEN REPETITIONS STATE_DIR DEPTH...
//
// Why not llama-bench itself: that fills the context anew for every test, minutes at 16k tokens, and engines
// can be compared on a shared machine only when their turns lie seconds apart. Here the filled cache is kept
// in STATE_DIR (a file for each model, setting and depth) and read back by the next run. "-" keeps none.
// PROMPT or GEN 0 leaves that test out.
#include "llama.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

static llama_context *ctx;
static int vocabulary;

static void die(const std::string &what) { fprintf(stderr, "llamacpp_depth: %s\n", what.c_str()); exit(1); }

static double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void decode(llama_token *ids, int n) {
    if (llama_decode(ctx, llama_batch_get_one(ids, n))) die("llama_decode failed");
}

static void prompt(int n) {
    std::vector<llama_token> ids(512);
    for (int k; n > 0; n -= k) {
        k = std::min(n, 512);
        for (int i = 0; i < k; i++) ids[i] = std::rand() % vocabulary;
        decode(ids.data(), k);
    }
    llama_synchronize(ctx);
}

static void generate(int n) {
    for (int i = 0; i < n; i++) {
        llama_token id = std::rand() % vocabulary;
        decode(&id, 1);
        llama_synchronize(ctx);
    }
}

static void fill(int have, int depth, const std::string &file) {
    if (!file.empty()) {
        std::vector<llama_token> ids(depth + 1);
        size_t n = 0;
        if (llama_state_seq_load_file(ctx, file.c_str(), 0, ids.data(), ids.size(), &n) && (int) n == depth) return;
        llama_memory_clear(llama_get_memory(ctx), true);
        have = 0;
    }
    prompt(depth - have);
    if (file.empty()) return;
    std::vector<llama_token> ids(depth, 0);
    const std::string part = file + ".part";
    if (!llama_state_seq_save_file(ctx, part.c_str(), 0, ids.data(), ids.size())) die("cannot write " + part);
    if (rename(part.c_str(), file.c_str())) die("cannot rename " + part);
}

static void report(const char *model, const char *kv, int fa, int threads, int depth, int n_prompt, int n_gen,
                   const std::vector<double> &samples) {
    double sum = 0;
    for (double s : samples) sum += s;
    printf("{\"model_filename\":\"%s\",\"n_threads\":%d,\"type_k\":\"%s\",\"flash_attn\":%d,\"n_prompt\":%d,\"n_gen\":%d,"
           "\"n_depth\":%d,\"avg_ts\":%.3f,\"samples_ts\":[", model, threads, kv, fa, n_prompt, n_gen, depth, sum / samples.size());
    for (size_t i = 0; i < samples.size(); i++) printf("%s%.3f", i ? "," : "", samples[i]);
    printf("]}\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 10) die("usage: llamacpp_depth MODEL THREADS FA KV PROMPT GEN REPETITIONS STATE_DIR DEPTH...");
    const int threads = atoi(argv[2]), fa = atoi(argv[3]), n_prompt = atoi(argv[5]), n_gen = atoi(argv[6]), reps = atoi(argv[7]);
    const std::string kv = argv[4], dir = argv[8];
    std::vector<int> depths;
    for (int i = 9; i < argc; i++) depths.push_back(atoi(argv[i]));
    std::sort(depths.begin(), depths.end());
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) die("cannot load the model");
    vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    auto p = llama_context_default_params();
    p.n_ctx = depths.back() + std::max(n_prompt, n_gen) + 64;
    p.n_batch = 2048;
    p.n_ubatch = 512;
    p.n_threads = p.n_threads_batch = threads;
    p.type_k = p.type_v = kv == "q8_0" ? GGML_TYPE_Q8_0 : kv == "f32" ? GGML_TYPE_F32 : GGML_TYPE_F16;
    p.flash_attn_type = fa ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.swa_full = false;
    ctx = llama_init_from_model(model, p);
    if (!ctx) die("cannot make a context (quantised KV needs flash attention)");
    const auto memory = llama_get_memory(ctx);
    const char *base = strrchr(argv[1], '/') ? strrchr(argv[1], '/') + 1 : argv[1];

    generate(4); // warm up
    llama_memory_clear(memory, true);
    int at = 0;
    for (int depth : depths) {
        const bool keep = dir != "-" && depth > 0;
        fill(at, depth, keep ? dir + "/" + base + "." + kv + ".fa" + argv[3] + "." + std::to_string(depth) : "");
        at = depth;
        for (int n : {n_prompt, -n_gen}) { // negative: generation
            std::vector<double> samples;
            for (int r = 0; n && r < reps; r++) {
                const double start = now_s();
                n > 0 ? prompt(n) : generate(-n);
                samples.push_back(std::abs(n) / (now_s() - start));
                if (!llama_memory_seq_rm(memory, 0, depth, -1)) die("cannot cut the cache back");
            }
            if (n) report(base, kv.c_str(), fa, threads, depth, n > 0 ? n : 0, n > 0 ? 0 : -n, samples);
        }
    }
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
