#include "runtime/data/csv.h"
#include "runtime/data/dataset.h"
#include "runtime/data/idx.h"
#include "runtime/data/image_folder.h"
#include "runtime/data/npy.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/tokens.h"

namespace lockstep::data {

Result<Datasets> OpenDatasets(const api::TrainingSpec& spec) {
  const api::DataSpec& data = spec.data;
  switch (data.format) {
    case api::DataFormat::kIdx: return OpenIdx(data.path);
    case api::DataFormat::kCsv: return OpenCsv(data.path, data.csv);
    case api::DataFormat::kNpy: return OpenNpy(data.path);
    case api::DataFormat::kImageFolder: return OpenImageFolder(data.path, data.image_folder);
    case api::DataFormat::kTokens:
      return OpenTokens(data.path, spec.model.gpt.context_length, spec.model.gpt.vocabulary_size);
    case api::DataFormat::kSynthetic: return MakeSynthetic(data.synthetic, spec.seed);
  }
  LOCKSTEP_CHECK(false, "a format without a case");
}

}  // namespace lockstep::data
