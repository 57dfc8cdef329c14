// What the tests of engine/data share: a directory that goes away, and sources made of strings.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/data/example_encoder.h"
#include "engine/data/source.h"
#include "engine/data/token_cache.h"
#include "engine/tokenizer/tokenizer.h"

namespace penstock {

// The value, or a failed test and an abort that names the status.
template <typename T>
T Must(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return std::move(value).value();
}

class TempDir {
 public:
  TempDir() {
    std::string name = testing::TempDir() + "/penstock_data_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  ~TempDir() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& content) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }
  std::vector<std::string> Names(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/" + folder)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

// Documents as plain vectors.
struct CollectedDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // empty: all
  SourceLocation location;
};

class Collector final : public DocumentSink {
 public:
  absl::Status Append(std::span<const int32_t> ids, std::span<const uint8_t> trained) override {
    open_.ids.insert(open_.ids.end(), ids.begin(), ids.end());
    open_.trained.insert(open_.trained.end(), trained.begin(), trained.end());
    return absl::OkStatus();
  }
  absl::Status EndDocument(const SourceLocation& start) override {
    open_.location = start;
    documents.push_back(std::move(open_));
    open_ = {};
    return absl::OkStatus();
  }
  absl::Status Note(const SourceNote& note) override {
    notes.push_back(note);
    return absl::OkStatus();
  }

  std::vector<std::vector<int32_t>> Ids() const {
    std::vector<std::vector<int32_t>> ids;
    for (const CollectedDocument& document : documents) ids.push_back(document.ids);
    return ids;
  }

  std::vector<CollectedDocument> documents;
  std::vector<SourceNote> notes;

 private:
  CollectedDocument open_;
};

inline std::string ToJsonl(const std::vector<std::vector<int32_t>>& rows) {
  std::string text;
  for (const std::vector<int32_t>& row : rows) {
    std::string line;
    for (const int32_t id : row) line += (line.empty() ? "" : ",") + std::to_string(id);
    text += "[" + line + "]\n";
  }
  return text;
}

inline DataSource JsonlSource(std::vector<std::string> paths) {
  return {.format = DataFormat::kTokenIdsJsonl, .paths = std::move(paths)};
}

// What examples become with the bytes as ids and no chat template.
inline const ExampleEncoder& ByteEncoder() {
  static const ByteTokenizer tokenizer;
  static const ExampleEncoder encoder = Must(ExampleEncoder::Create({.tokenizer = &tokenizer}));
  return encoder;
}

// The cache of `source` in folder "cache" of `dir`.
inline absl::StatusOr<std::shared_ptr<const TokenCache>> OpenIn(const TempDir& dir,
                                                                const DataSource& source) {
  return TokenCache::OpenOrBuild(
      {.source = source, .encoder = &ByteEncoder(), .directory = dir.path() + "/cache"});
}

inline std::shared_ptr<const TokenCache> CacheOfRows(
    const TempDir& dir, const std::vector<std::vector<int32_t>>& rows) {
  return Must(OpenIn(dir, JsonlSource({dir.Write("rows.jsonl", ToJsonl(rows))})));
}

// Rows of these lengths; every token of all rows has an id of its own, counted from 0.
inline std::vector<std::vector<int32_t>> RowsOfLengths(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> rows;
  int32_t next = 0;
  for (const int64_t length : lengths) {
    rows.emplace_back();
    for (int64_t i = 0; i < length; ++i) rows.back().push_back(next++);
  }
  return rows;
}

}  // namespace penstock
