// Damaged provenance.json: what is taken of it gives the same text again.
#include "engine/provenance/provenance.h"
#include "engine/provenance/sha256.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

using nlohmann::ordered_json;

std::string Seed() {
  Provenance provenance;
  provenance.job = "jobs/a";
  provenance.attempt = 1;
  provenance.step = 7;
  provenance.code_version = "1";
  provenance.public_key = Sha256Of("key");
  provenance.files = {{"manifest.json", 3, Sha256Of("m")},
                      {"source/config.json", 2, Sha256Of("c")}};
  provenance.parent = ParentCheckpoint{"jobs/b/checkpoints/2", "/b/2", Sha256Of("p")};
  provenance.model = ModelOrigin{"/m", {{"config.json", 2, Sha256Of("c")}}};
  provenance.data = DataOrigin{"3 documents", "ff", {{"main", "training", "00"}}};
  provenance.spec = "{}";
  return ProvenanceText(provenance);
}

class ProvenanceTarget final : public Target {
 public:
  absl::StatusOr<Outcome> RunCase(Random& random) override {
    std::string text = seed_;
    if (random.OneIn(3)) {
      text = MutateText(std::move(text), {}, seed_, random);
    } else {
      ordered_json root = ordered_json::parse(text);
      MutateJson(root, random);
      text = root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    }
    const auto provenance = ParseProvenance(text, "provenance.json");
    if (!provenance.ok()) {
      if (absl::Status status = CheckRefusal(provenance.status(), text); !status.ok()) {
        return status;
      }
      return Outcome::kRefused;
    }
    if (ProvenanceText(*provenance) != text) return Violation("gives another text", text);
    return Outcome::kAccepted;
  }

 private:
  const std::string seed_ = Seed();
};

}  // namespace

std::unique_ptr<Target> MakeProvenanceTarget(const std::string& /*testdata*/) {
  return std::make_unique<ProvenanceTarget>();
}

}  // namespace penstock::fuzz
