#pragma once
// Token files for language models: bytes of a text (train.txt and val.txt), or 16-bit little-endian numbers
// as nanoGPT and llm.c write them (train.bin and val.bin). A sample is a sequence of a fixed length; its
// targets are the tokens that follow each position. Samples are read when a batch needs them: a data set may
// be larger than memory and may still be downloading.

#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/local_copy.h"

namespace lockstep::data {

// Tokens must be below `vocabulary`: otherwise Get throws std::out_of_range with the file and the position in
// it. Get waits for parts that are still downloading, and throws ErrorException as that of OpenImageFolder.
[[nodiscard]] Result<Datasets> OpenTokens(const std::string& folder, int64_t length, int64_t vocabulary,
                                          const FileAccess& access = {});

}  // namespace lockstep::data
