#include <memory>
#include <utility>

#include "runtime/data/csv.h"
#include "runtime/data/dataset.h"
#include "runtime/data/idx.h"
#include "runtime/data/image_folder.h"
#include "runtime/data/local_copy.h"
#include "runtime/data/npy.h"
#include "runtime/data/plugin.h"
#include "runtime/data/retries.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/tokens.h"

namespace lockstep::data {
namespace {

Result<Datasets> OpenFolder(const api::TrainingSpec& spec, const std::string& folder,
                            const FileAccess& access) {
  const api::DataSpec& data = spec.data;
  switch (data.format) {
    case api::DataFormat::kIdx: return OpenIdx(folder);
    case api::DataFormat::kCsv: return OpenCsv(folder, data.csv, data.on_corrupt_record);
    case api::DataFormat::kNpy: return OpenNpy(folder);
    case api::DataFormat::kImageFolder:
      return OpenImageFolder(folder, data.image_folder, data.on_corrupt_record, access);
    case api::DataFormat::kTokens:
      return OpenTokens(folder, spec.model.gpt.context_length, spec.model.gpt.vocabulary_size, access);
    case api::DataFormat::kSynthetic: return MakeSynthetic(data.synthetic, spec.seed);
    case api::DataFormat::kPlugin:
      return OpenPlugin(data.plugin.value_or(api::PluginSpec{}), static_cast<uint64_t>(spec.seed),
                        access.retries);
  }
  LOCKSTEP_CHECK(false, "unhandled data format");
}

}  // namespace

Result<Datasets> OpenDatasets(const api::TrainingSpec& spec, const CopyOptions& copying) {
  FileAccess access{.retries = RetriesOfFiles(copying.fetch.retries, copying.alive)};
  if (!api::IsRemote(spec.data)) {
    return WithRetries<Datasets>(access.retries, [&] { return OpenFolder(spec, spec.data.path, access); });
  }
  LOCKSTEP_TRY(std::unique_ptr<RemoteObjects> source, OpenRemoteObjects(spec.data));
  LOCKSTEP_TRY(access.copy, LocalCopy::Open(spec.data, std::move(source), copying));
  LOCKSTEP_TRY(Datasets sets, OpenFolder(spec, access.copy->folder(), access));
  sets.in_use = access.copy->InUse();
  return sets;
}

Result<Datasets> OpenDatasets(const api::TrainingSpec& spec) { return OpenDatasets(spec, CopyOptions{}); }

}  // namespace lockstep::data
