#include <memory>
#include <utility>

#include "runtime/data/csv.h"
#include "runtime/data/dataset.h"
#include "runtime/data/idx.h"
#include "runtime/data/image_folder.h"
#include "runtime/data/local_copy.h"
#include "runtime/data/npy.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/tokens.h"

namespace lockstep::data {
namespace {

Result<Datasets> OpenFolder(const api::TrainingSpec& spec, const std::string& folder) {
  const api::DataSpec& data = spec.data;
  switch (data.format) {
    case api::DataFormat::kIdx: return OpenIdx(folder);
    case api::DataFormat::kCsv: return OpenCsv(folder, data.csv, data.on_corrupt_record);
    case api::DataFormat::kNpy: return OpenNpy(folder);
    case api::DataFormat::kImageFolder:
      return OpenImageFolder(folder, data.image_folder, data.on_corrupt_record);
    case api::DataFormat::kTokens:
      return OpenTokens(folder, spec.model.gpt.context_length, spec.model.gpt.vocabulary_size);
    case api::DataFormat::kSynthetic: return MakeSynthetic(data.synthetic, spec.seed);
  }
  LOCKSTEP_CHECK(false, "a format without a case");
}

}  // namespace

Result<Datasets> OpenDatasets(const api::TrainingSpec& spec, const CopyOptions& copying) {
  if (!api::IsRemote(spec.data)) return OpenFolder(spec, spec.data.path);
  LOCKSTEP_TRY(const std::unique_ptr<RemoteObjects> source, OpenRemoteObjects(spec.data));
  LOCKSTEP_TRY(LocalCopy copy, MakeLocalCopy(spec.data, *source, copying));
  LOCKSTEP_TRY(Datasets sets, OpenFolder(spec, copy.folder));
  sets.in_use = std::move(copy.in_use);
  return sets;
}

Result<Datasets> OpenDatasets(const api::TrainingSpec& spec) { return OpenDatasets(spec, CopyOptions{}); }

}  // namespace lockstep::data
