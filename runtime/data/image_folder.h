#pragma once
// A folder of images per class: train/CLASS/*.jpg, *.jpeg or *.png, and test/CLASS/… with the same classes,
// which are numbered in the order of their names. Opening lists the files; each is read and decoded when a
// batch needs it, on the calling thread, which waits for files that are still being downloaded.

#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/local_copy.h"

namespace lockstep::data {

// Samples are [3, size, size], from 0 to 1. Get throws ErrorException. kDataLoss: a file is not a usable
// image and corrupt records are not skipped, or permission is denied. kAborted: the file system was
// unavailable for longer than the retries last. kInternal: reading failed otherwise. The latter two may
// succeed in the next round.
[[nodiscard]] Result<Datasets> OpenImageFolder(const std::string& folder, const api::ImageFolderSpec& spec,
                                               api::OnCorruptRecord on_corrupt = api::OnCorruptRecord::kFail,
                                               const FileAccess& access = {});

}  // namespace lockstep::data
