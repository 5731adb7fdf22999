// llama.cpp's logits of a file whose window it does not compute, with that window.
//
//   golden_window MODEL WINDOW OUT TOKEN...
//
// llama.cpp lets a token see what shares its sequence. Each is read in a sequence of its own, into
// which the WINDOW - 1 tokens before it have been copied: nothing of llama.cpp is changed. Writes
// f32 [tokens, vocabulary] to OUT. Build it in a folder where llama.cpp's source is `src` and its
// static libraries are below `cmake`:
//
//   g++ -std=c++17 -O2 -fopenmp golden_window.cpp -o golden_window -I src/include
//   -I src/ggml/include cmake/src/libllama.a cmake/ggml/src/libggml.a
//   cmake/ggml/src/libggml-cpu.a cmake/ggml/src/libggml-base.a -ldl

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

int fail(const char *what) {
    std::fprintf(stderr, "golden_window: %s\n", what);
    return 1;
}

}  // namespace

int main(int count, char **words) {
    if (count < 5) return fail("MODEL WINDOW OUT TOKEN...");
    const int window = std::atoi(words[2]);
    std::vector<llama_token> tokens;
    for (int at = 4; at < count; ++at) tokens.push_back(std::atoi(words[at]));
    const int length = static_cast<int>(tokens.size());

    llama_backend_init();
    llama_model *model = llama_model_load_from_file(words[1], llama_model_default_params());
    if (model == nullptr) return fail("cannot load the model");
    llama_context_params options = llama_context_default_params();
    options.n_ctx = options.n_batch = options.n_ubatch = 256;
    options.n_seq_max = length;
    options.n_threads = options.n_threads_batch = 1;
    options.kv_unified = true;
    options.type_k = options.type_v = GGML_TYPE_F32;
    options.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, options);
    if (context == nullptr) return fail("cannot make a context");

    std::FILE *out = std::fopen(words[3], "wb");
    if (out == nullptr) return fail("cannot write the logits");
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_batch batch = llama_batch_init(1, 0, 1);
    batch.n_tokens = batch.n_seq_id[0] = batch.logits[0] = 1;
    for (int at = 0; at < length; ++at) {
        batch.token[0] = tokens[at];
        batch.pos[0] = batch.seq_id[0][0] = at;
        if (llama_decode(context, batch) != 0) return fail("cannot read a token");
        std::fwrite(llama_get_logits_ith(context, 0), sizeof(float), vocabulary, out);
        for (int later = at + 1; later < std::min(at + window, length); ++later) {
            llama_memory_seq_cp(llama_get_memory(context), at, later, at, at + 1);
        }
    }
    std::fclose(out);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
