#include "engine/provenance/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

Provenance Example() {
  Provenance provenance;
  provenance.job = "jobs/a";
  provenance.attempt = 2;
  provenance.step = 40;
  provenance.code_version = "1.2.3";
  provenance.public_key = Sha256Of("key");
  provenance.files = {{"weights-00001.safetensors", 12, Sha256Of("w")},
                      {"manifest.json", 3, Sha256Of("m")}};
  provenance.parent = ParentCheckpoint{"jobs/b/checkpoints/20", "/b/20", Sha256Of("parent")};
  provenance.model = ModelOrigin{"/models/x", {{"config.json", 2, Sha256Of("{}")}}};
  provenance.data = DataOrigin{"3 documents", "ff", {{"main", "training", "00ff"}}};
  provenance.spec = "{\"seed\": \"1\"}";
  return provenance;
}

// What docs/provenance.md promises: a change here is a new format_version.
TEST(ProvenanceTest, TheTextIsTheOneOfTheFormat) {
  EXPECT_EQ(ProvenanceText(Example()), absl::StrCat(R"({
 "format": "penstock-provenance",
 "format_version": 1,
 "what": "checkpoint",
 "job": "jobs/a",
 "attempt": 2,
 "step": 40,
 "code_version": "1.2.3",
 "public_key": ")",
                                                    Sha256Of("key"), R"(",
 "files": [
  {
   "name": "manifest.json",
   "bytes": 3,
   "sha256": ")",
                                                    Sha256Of("m"), R"("
  },
  {
   "name": "weights-00001.safetensors",
   "bytes": 12,
   "sha256": ")",
                                                    Sha256Of("w"), R"("
  }
 ],
 "parents": {
  "checkpoint": {
   "name": "jobs/b/checkpoints/20",
   "path": "/b/20",
   "provenance_sha256": ")",
                                                    Sha256Of("parent"), R"("
  },
  "model": {
   "path": "/models/x",
   "files": [
    {
     "name": "config.json",
     "bytes": 2,
     "sha256": ")",
                                                    Sha256Of("{}"), R"("
    }
   ],
   "problem": ""
  },
  "data": {
   "training": "3 documents",
   "encoding": "ff",
   "sources": [
    {
     "name": "main",
     "use": "training",
     "token_cache": "00ff"
    }
   ]
  }
 },
 "job_spec": {
  "sha256": ")",
                                                    Sha256Of("{\"seed\": \"1\"}"), R"(",
  "text": "{\"seed\": \"1\"}"
 }
}
)"));
}

TEST(ProvenanceTest, ReadsBackWhatItWrites) {
  Provenance bare;
  bare.subject = ProvenanceSubject::kExport;
  bare.spec = "line\nline \xff \xe2\x82\xac \"quoted\"";
  for (const Provenance& provenance : {Example(), bare}) {
    const std::string text = ProvenanceText(provenance);
    const auto parsed = ParseProvenance(text, "p");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(ProvenanceText(*parsed), text);
  }
  const auto parsed = ParseProvenance(ProvenanceText(Example()), "p");
  EXPECT_EQ(parsed->step, 40);
  EXPECT_EQ(parsed->files.at(0).name, "manifest.json");
  EXPECT_EQ(parsed->parent->path, "/b/20");
  EXPECT_EQ(parsed->model->files.at(0).bytes, 2);
  EXPECT_EQ(parsed->data->sources.at(0).token_cache, "00ff");
  EXPECT_EQ(CheckpointNameOf(*parsed), "jobs/a/checkpoints/40");
}

TEST(ProvenanceTest, OneContentHasOneText) {
  const std::string text = ProvenanceText(Example());
  const std::pair<const char*, const char*> changes[] = {
      {"\"attempt\": 2", "\"attempt\":  2"},
      {"\"attempt\": 2,\n \"step\": 40", "\"step\": 40,\n \"attempt\": 2"},
      {"\"attempt\": 2", "\"attempt\": 2, \"note\": 1"},
      {"jobs/a", "jobs\\u002fa"},
      {"\\\"1\\\"", "\\\"2\\\""},  // the spec, not its hash
      {"\n}\n", "\n}\n\n"}};
  for (const auto& [from, to] : changes) {
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(changed, text) << from;
    const absl::Status status = ParseProvenance(changed, "p").status();
    EXPECT_EQ(ReasonOf(status), reason::kCheckpointCorrupt) << to;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not in canonical form")) << to;
  }
}

TEST(ProvenanceTest, NamesWhatIsWrong) {
  const std::string text = ProvenanceText(Example());
  const struct {
    const char* from;
    const char* to;
    const char* wanted;
  } changes[] = {{"\"step\": 40", "\"step\": -1", "step"},
                 {"\"bytes\": 3", "\"bytes\": 9223372036854775808", "files[0].bytes"},
                 {"\"what\": \"checkpoint\"", "\"what\": \"model\"", "what"},
                 {"\"name\": \"manifest.json\"", "\"name\": \"x\"", "files[1].name"},
                 {"\"parents\"", "\"parent\"", "parents"},
                 {"penstock-provenance", "other", "format"},
                 {"\"attempt\": 2,", "\"attempt\": 2, \"attempt\": 2,", "attempt"}};
  for (const auto& change : changes) {
    const std::string changed = absl::StrReplaceAll(text, {{change.from, change.to}});
    ASSERT_NE(changed, text) << change.from;
    const absl::Status status = ParseProvenance(changed, "the/file").status();
    EXPECT_EQ(ReasonOf(status), reason::kCheckpointCorrupt) << change.to;
    EXPECT_THAT(std::string(status.message()), HasSubstr(change.wanted));
    EXPECT_THAT(std::string(status.message()), HasSubstr("the/file"));
  }
  for (const std::string& hostile :
       {std::string(), std::string("\0\0\0", 3), std::string("[]"), std::string(100'000, '['),
        std::string("{\"format\": {\"format\": {}}}"), text.substr(0, text.size() / 2)}) {
    EXPECT_EQ(ReasonOf(ParseProvenance(hostile, "p").status()), reason::kCheckpointCorrupt);
  }
}

TEST(ProvenanceTest, SaysThatALaterVersionIsOne) {
  const absl::Status status =
      ParseProvenance(absl::StrReplaceAll(ProvenanceText(Example()),
                                          {{"\"format_version\": 1", "\"format_version\": 2"}}),
                      "p")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(status), reason::kFeatureUnsupported);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format_version is 2"));
}

}  // namespace
}  // namespace penstock
