#pragma once
// Files of tokens for language models: bytes of a text (train.txt and val.txt), or 16-bit little-endian
// numbers as nanoGPT and llm.c write them (train.bin and val.bin). A sample is a sequence of a fixed length;
// its targets are the tokens that follow each place. Samples are read when a batch needs them: a data set
// may be larger than the memory, and may still be arriving.

#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/local_copy.h"

namespace lockstep::data {

// Tokens are numbers below `vocabulary`: one that is not makes Get throw std::out_of_range, with the file and
// the place in it. Get waits for what is still arriving, and throws ErrorException as that of OpenImageFolder.
[[nodiscard]] Result<Datasets> OpenTokens(const std::string& folder, int64_t length, int64_t vocabulary,
                                          const FileAccess& access = {});

}  // namespace lockstep::data
