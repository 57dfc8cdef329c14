// The targets of penstock_fuzz: what the engine reads.
#include "tests/fuzz/target.h"

namespace penstock::fuzz {

const std::vector<TargetFactory>& Targets() {
  static const auto* const targets = new std::vector<TargetFactory>{
      {"tokenizer_json", MakeTokenizerJsonTarget},
      {"sentencepiece", MakeSentencePieceTarget},
      {"template", MakeTemplateTarget},
      {"json_lines", MakeJsonLinesTarget},
      {"json_array", MakeJsonArrayTarget},
      {"csv", MakeCsvTarget},
      {"dataset_info", MakeDatasetInfoTarget},
      {"provenance", MakeProvenanceTarget},
      {"encoder", MakeEncoderTarget},
  };
  return *targets;
}

}  // namespace penstock::fuzz
