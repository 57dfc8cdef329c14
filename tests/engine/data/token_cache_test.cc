#include "engine/data/token_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/data/hash.h"
#include "engine/data/temporary_file.h"
#include "engine/data/token_cache_builder.h"
#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::vector<int32_t>> RowsOf(const TokenCache& cache) {
  std::vector<std::vector<int32_t>> rows;
  for (int64_t d = 0; d < cache.documents(); ++d) {
    const auto ids = cache.ids().subspan(cache.Begin(d), cache.End(d) - cache.Begin(d));
    rows.emplace_back(ids.begin(), ids.end());
  }
  return rows;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// BC-20
TEST(TokenCacheTest, KeepsLargeIdsAndLongDocumentsExactly) {
  TempDir dir;
  std::vector<std::vector<int32_t>> rows = {
      {65535, 65536, 65537}, {70001, 0}, std::vector<int32_t>(70000), {2147483647}};
  std::iota(rows[2].begin(), rows[2].end(), 1);
  const auto cache = CacheOfRows(dir, rows);
  EXPECT_EQ(RowsOf(*cache), rows);
  EXPECT_EQ(cache->End(2) - cache->Begin(2), 70000);
  EXPECT_EQ(cache->max_id(), 2147483647);
  EXPECT_EQ(cache->max_id_document(), 3);
}

TEST(TokenCacheTest, IsFoundAgainAndEqual) {
  TempDir dir;
  const auto built = CacheOfRows(dir, {{1, 2}, {3}});
  const auto found = CacheOfRows(dir, {{1, 2}, {3}});
  EXPECT_EQ(built->origin(), TokenCache::Origin::kBuilt);
  EXPECT_EQ(found->origin(), TokenCache::Origin::kFound);
  EXPECT_EQ(RowsOf(*found), RowsOf(*built));
  EXPECT_THAT(dir.Names("cache"), SizeIs(1));
}

// BC-17: the same tokens, whatever the line ends.
TEST(TokenCacheTest, EveryRowSpellingHasTheSameTokens) {
  TempDir dir;
  const auto lf = Must(OpenIn(dir, JsonlSource({dir.Write("a", "[1,2]\n[3]\n")})));
  const auto crlf = Must(OpenIn(dir, JsonlSource({dir.Write("b", "\xef\xbb\xbf[1,2]\r\n[3]")})));
  EXPECT_EQ(RowsOf(*lf), RowsOf(*crlf));
  EXPECT_NE(lf->path(), crlf->path());
}

TEST(TokenCacheTest, KeepsLocationsAndSkippedRows) {
  TempDir dir;
  DataSource source = JsonlSource({dir.Write("a", "[1]\nbad\n[2]\n"), dir.Write("b", "\n[3]\n")});
  source.on_bad_row = BadRowPolicy::kSkip;
  for (int i = 0; i < 2; ++i) {  // built, then found
    const auto cache = Must(OpenIn(dir, source));
    EXPECT_EQ(ToText(cache->Location(1), cache->source_paths()), source.paths[0] + ":3");
    EXPECT_EQ(ToText(cache->Location(2), cache->source_paths()), source.paths[1] + ":2");
    EXPECT_EQ(cache->NoteCount(NoteKind::kBadRow), 1);
    ASSERT_THAT(cache->notes(), SizeIs(1));
    EXPECT_EQ(cache->notes()[0].location.line, 2);
    EXPECT_EQ(cache->notes()[0].column, 1);
    EXPECT_THAT(cache->notes()[0].text, HasSubstr("'b'"));
  }
}

TEST(TokenCacheTest, ListOfSkippedRowsIsCappedAndTheirNumberIsNot) {
  TempDir dir;
  std::string file = "[1]\n";
  for (int i = 0; i < 150; ++i) file += "x\n";
  DataSource source = JsonlSource({dir.Write("a", file)});
  source.on_bad_row = BadRowPolicy::kSkip;
  source.max_bad_rows = 200;
  const auto cache = Must(OpenIn(dir, source));
  EXPECT_EQ(cache->NoteCount(NoteKind::kBadRow), 150);
  EXPECT_THAT(cache->notes(), SizeIs(kMaxNotesListed));
}

// Rows whose masked tokens come late, early, and at the borders of words.
TEST(TokenCacheTest, KeepsTheLabelMask) {
  std::mt19937 random(7);
  for (const int64_t first_masked : {0, 1, 63, 64, 65, 200}) {
    TempDir dir;
    std::string file;
    std::vector<bool> wanted;
    for (int row = 0; row < 40; ++row) {
      std::string ids, labels;
      for (int i = 0; i < 10; ++i) {
        const auto token = static_cast<int64_t>(wanted.size());
        const bool masked = token == first_masked || (token > first_masked && random() % 3 == 0);
        ids += (i > 0 ? "," : "") + std::to_string(token);
        labels += (i > 0 ? "," : "") + (masked ? "-100" : std::to_string(token));
        wanted.push_back(!masked);
      }
      const bool all = labels.find("-100") == std::string::npos;
      file += all ? "[" + ids + "]\n" : "{\"ids\":[" + ids + "],\"labels\":[" + labels + "]}\n";
    }
    const auto cache = Must(OpenIn(dir, JsonlSource({dir.Write("rows", file)})));
    ASSERT_FALSE(cache->AllTrained());
    for (int64_t t = 0; t < cache->tokens(); ++t) ASSERT_EQ(cache->Trained(t), wanted[t]) << t;
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<int64_t>(random() % (wanted.size() + 1));
      const auto end = begin + static_cast<int64_t>(random() % (wanted.size() + 1 - begin));
      EXPECT_EQ(cache->CountTrained(begin, end),
                std::count(wanted.begin() + begin, wanted.begin() + end, true));
    }
  }
}

TEST(TokenCacheTest, HasNoMaskIfEveryTokenIsALabel) {
  TempDir dir;
  const auto cache =
      Must(OpenIn(dir, JsonlSource({dir.Write("rows", R"({"ids":[1,2],"labels":[1,2]})")})));
  EXPECT_TRUE(cache->AllTrained());
  EXPECT_EQ(cache->CountTrained(0, 2), 2);
}

// The bytes' ids, shifted: same vocabulary size, other ids.
class ShiftedTokenizer final : public Tokenizer {
 public:
  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back((static_cast<unsigned char>(c) + 1) % 256);
    return absl::OkStatus();
  }
  absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions&,
                               Encoding& encoding) const override {
    encoding = {};
    for (size_t i = 0; i < text.size(); ++i) {
      encoding.spans.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1});
    }
    return Encode(text, encoding.ids);
  }
  int64_t vocab_size() const override { return 257; }
  std::string fingerprint() const override { return "shifted"; }
  std::optional<int32_t> end_of_document() const override { return std::nullopt; }
};

TEST(TokenCacheTest, KeyCoversTokenizerOptionsAndContentAndNothingElse) {
  TempDir dir;
  const ExampleEncoder& bytes = ByteEncoder();
  const ShiftedTokenizer shifted_tokenizer;
  const ExampleEncoder shifted = Must(ExampleEncoder::Create({.tokenizer = &shifted_tokenizer}));
  const auto open = [&](const DataSource& source, const ExampleEncoder& encoder) {
    return Must(TokenCache::OpenOrBuild(
        {.source = source, .encoder = &encoder, .directory = dir.path() + "/cache"}));
  };
  const DataSource text = {.format = DataFormat::kText, .paths = {dir.Write("a", "ab\n\ncd")}};
  const auto first = open(text, bytes);

  DataSource paragraphs = text;
  paragraphs.text_documents = TextDocuments::kBlankLine;
  EXPECT_EQ(open(paragraphs, bytes)->documents(), 2);
  EXPECT_EQ(open(text, shifted)->ids()[0], 'a' + 1);

  DataSource elsewhere = text;
  elsewhere.paths = {dir.Write("copy", "ab\n\ncd")};
  const auto moved = open(elsewhere, bytes);
  EXPECT_EQ(moved->origin(), TokenCache::Origin::kFound);
  EXPECT_EQ(moved->path(), first->path());
  EXPECT_EQ(ToText(moved->Location(0), moved->source_paths()), elsewhere.paths[0] + ":1");

  dir.Write("a", "ab\n\ncx");  // same name, same size
  const auto changed = open(text, bytes);
  EXPECT_EQ(changed->origin(), TokenCache::Origin::kBuilt);
  EXPECT_EQ(changed->ids()[5], 'x');
  EXPECT_EQ(first->ids()[5], 'd');  // a cache that is open stays what it was
}

TEST(TokenCacheTest, BordersBetweenFilesArePartOfTheKey) {
  TempDir dir;
  const auto ab_c = Must(OpenIn(dir, {.paths = {dir.Write("1", "ab"), dir.Write("2", "c")}}));
  const auto a_bc = Must(OpenIn(dir, {.paths = {dir.Write("3", "a"), dir.Write("4", "bc")}}));
  EXPECT_NE(ab_c->path(), a_bc->path());
}

TEST(TokenCacheTest, DataWithoutDocumentsIsRefusedWithTheNumbers) {
  TempDir dir;
  for (const char* content : {"", "\n \n"}) {
    const absl::Status status = OpenIn(dir, JsonlSource({dir.Write("rows", content)})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr("0 rows used"));
  }
}

// Flipped bits and lost ends all over the file: never trusted, the right tokens in the end.
TEST(TokenCacheTest, DamageIsFoundAndTheCacheBuiltAgain) {
  TempDir dir;
  const std::string rows = "{\"ids\":[1,2,3],\"labels\":[-100,2,3]}\n[4]\nbad\n";
  DataSource source = JsonlSource({dir.Write("rows", rows)});
  source.on_bad_row = BadRowPolicy::kSkip;
  const std::string path = Must(OpenIn(dir, source))->path();
  const std::string good = ReadFile(path);
  std::vector<std::string> damaged = {"", std::string(good.size(), '\0'), good + "x"};
  for (size_t i = 0; i < good.size(); i += 5) {
    damaged.push_back(good);
    damaged.back()[i] ^= 0x10;
    damaged.push_back(good.substr(0, i));
  }
  for (const std::string& content : damaged) {
    WriteFile(path, content);
    const auto cache = Must(OpenIn(dir, source));
    ASSERT_EQ(cache->origin(), TokenCache::Origin::kRebuilt);
    EXPECT_THAT(cache->origin_detail(), HasSubstr(path));
    ASSERT_EQ(RowsOf(*cache), (std::vector<std::vector<int32_t>>{{1, 2, 3}, {4}}));
    ASSERT_EQ(ReadFile(path), good);
  }
}

// A file whose checksums are right and whose content is not: made by hand, or by a bug.
TEST(TokenCacheTest, CraftedFilesWithRightChecksumsAreNotTrusted) {
  TempDir dir;
  const DataSource source = JsonlSource({dir.Write("rows", "[1,2,3]\n[4]\n")});
  const std::string path = Must(OpenIn(dir, source))->path();
  const std::string good = ReadFile(path);
  const size_t ids_at = sizeof(CacheHeader);
  const size_t documents_at = ids_at + 4 * sizeof(int32_t);
  const auto craft = [&](size_t at, auto value) {
    std::string content = good;
    std::memcpy(content.data() + at, &value, sizeof(value));
    CacheHeader header;
    std::memcpy(&header, content.data(), sizeof(header));
    ContentHash body;
    body.Update(content.data() + ids_at, static_cast<int64_t>(content.size() - ids_at));
    std::memcpy(header.body_hash, body.HexDigest().data(), kHashDigits);
    header.header_hash = HashOf(&header, offsetof(CacheHeader, header_hash));
    std::memcpy(content.data(), &header, sizeof(header));
    return content;
  };
  const uint64_t huge = uint64_t{1} << 62;
  const std::vector<std::string> crafted = {
      craft(offsetof(CacheHeader, tokens), huge),
      craft(offsetof(CacheHeader, tokens), uint64_t{3}),
      craft(offsetof(CacheHeader, documents), ~uint64_t{0}),
      craft(offsetof(CacheHeader, documents), uint64_t{1}),
      craft(offsetof(CacheHeader, mask_words), huge),
      craft(offsetof(CacheHeader, notes_bytes), ~uint64_t{0}),
      craft(offsetof(CacheHeader, max_id), uint64_t{3}),
      craft(offsetof(CacheHeader, max_id), huge),
      craft(offsetof(CacheHeader, max_id_document), uint64_t{2}),
      craft(offsetof(CacheHeader, version), kCacheVersion + 1),
      craft(ids_at, int32_t{-5}),
      craft(ids_at, int32_t{9}),
      craft(documents_at, uint64_t{0}),
      craft(documents_at, uint64_t{4}),
      craft(documents_at, huge),
      craft(documents_at + sizeof(CachedDocument), uint64_t{5}),
      craft(documents_at + offsetof(CachedDocument, location), huge),
  };
  for (size_t i = 0; i < crafted.size(); ++i) {
    WriteFile(path, crafted[i]);
    const auto cache = Must(OpenIn(dir, source));
    EXPECT_EQ(cache->origin(), TokenCache::Origin::kRebuilt) << i;
    EXPECT_EQ(RowsOf(*cache), (std::vector<std::vector<int32_t>>{{1, 2, 3}, {4}})) << i;
  }
}

// BC-24
TEST(TokenCacheTest, IdsAreCheckedAgainstTheEmbeddingRows) {
  TempDir dir;
  const auto cache = CacheOfRows(dir, {{1, 2}, {5, 514, 6}, {514}});
  const absl::Status status = CheckIdsFit(*cache, 512);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
  for (const char* part : {"token id 514", "rows.jsonl:2", "512 rows", "at least 515 rows"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  EXPECT_EQ(CheckIdsFit(*cache, 514).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckIdsFit(*cache, 515).ok());
  EXPECT_TRUE(CheckIdsFit(*cache, 576).ok());
}

TEST(TokenCacheTest, ProgressRisesToOneAndCancelsWithoutATrace) {
  TempDir dir;
  TokenCache::OpenArgs args = {.source = {.paths = {dir.Write("text", std::string(5 << 20, 'a'))}},
                               .encoder = &ByteEncoder(),
                               .directory = dir.path() + "/cache"};
  double last = 0;
  args.progress = [&](double fraction) {
    EXPECT_GE(fraction, last);
    last = fraction;
    return fraction > 0.7 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_EQ(TokenCache::OpenOrBuild(args).status(), absl::CancelledError("enough"));
  EXPECT_THAT(dir.Names("cache"), IsEmpty());
  int calls = 0;
  last = 0;
  args.progress = [&](double fraction) {
    ++calls;
    EXPECT_GE(fraction, last);
    EXPECT_LE(fraction, 1.0);
    last = fraction;
    return absl::OkStatus();
  };
  Must(TokenCache::OpenOrBuild(args));
  EXPECT_EQ(last, 1.0);
  EXPECT_GE(calls, 10);
}

// Other bytes of the same size, fewer bytes, and a file that never stops growing.
TEST(TokenCacheTest, AFileThatChangesWhileItIsReadIsRefused) {
  using Change = std::function<void(const std::string& path)>;
  const std::vector<Change> changes = {
      [](const std::string& path) {
        std::fstream file(path, std::ios::in | std::ios::out);
        file.seekp((3 << 20) - 1);
        file << "b";
      },
      [](const std::string& path) { std::filesystem::resize_file(path, (3 << 20) - 1); },
      [](const std::string& path) { std::ofstream(path, std::ios::app) << "more"; }};
  for (const Change& change : changes) {
    TempDir dir;
    const std::string path = dir.Write("text", std::string(3 << 20, 'a'));
    const absl::Status status = TokenCache::OpenOrBuild({.source = {.paths = {path}},
                                                         .encoder = &ByteEncoder(),
                                                         .directory = dir.path() + "/cache",
                                                         .progress =
                                                             [&](double fraction) {
                                                               if (fraction > 0.6) change(path);
                                                               return absl::OkStatus();
                                                             }})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr("while it was read"));
    EXPECT_THAT(dir.Names("cache"), IsEmpty());
  }
}

TEST(TokenCacheTest, BuildersSideBySideAllSucceed) {
  TempDir dir;
  std::vector<int64_t> lengths(2000);
  std::iota(lengths.begin(), lengths.end(), 1);
  for (int64_t& length : lengths) length = length % 97 + 1;
  const auto rows = RowsOfLengths(lengths);
  const DataSource source = JsonlSource({dir.Write("rows", ToJsonl(rows))});
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(RowsOf(*Must(OpenIn(dir, source))), rows); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(dir.Names("cache"), SizeIs(1));
  EXPECT_EQ(Must(OpenIn(dir, source))->origin(), TokenCache::Origin::kFound);
}

// Builds in a child that is killed once its progress has passed `fraction` and `delay_us` more.
void BuildAndKill(const TempDir& dir, const DataSource& source, double fraction, int delay_us) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool told = false;
    const auto built = TokenCache::OpenOrBuild({.source = source,
                                                .encoder = &ByteEncoder(),
                                                .directory = dir.path() + "/cache",
                                                .progress = [&](double done) {
                                                  if (done < fraction || told)
                                                    return absl::OkStatus();
                                                  told = true;
                                                  if (write(ends[1], "x", 1) != 1) _exit(2);
                                                  if (delay_us == 0) pause();
                                                  return absl::OkStatus();
                                                }});
    _exit(built.ok() ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  usleep(static_cast<useconds_t>(delay_us));
  kill(child, SIGKILL);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  close(ends[0]);
  close(ends[1]);
}

TEST(TokenCacheTest, AKilledBuilderLeavesNothingThatIsTakenForACache) {
  TempDir dir;
  const DataSource source = {.paths = {dir.Write("text", std::string(6 << 20, 'a'))}};
  for (const double fraction : {0.3, 0.51, 0.75, 0.99}) {
    BuildAndKill(dir, source, fraction, 0);
    for (const std::string& name : dir.Names("cache")) {
      EXPECT_THAT(name, HasSubstr(".tmp.")) << fraction;
    }
  }
  EXPECT_FALSE(dir.Names("cache").empty());  // what the last one left
  const auto cache = Must(OpenIn(dir, source));
  EXPECT_EQ(cache->origin(), TokenCache::Origin::kBuilt);
  EXPECT_EQ(cache->tokens(), (6 << 20) + 1);
  EXPECT_THAT(dir.Names("cache"), SizeIs(1));  // and that is gone
}

// Whenever it is killed on its last stretch, there is a whole cache or none.
TEST(TokenCacheTest, AKillDuringTheCommitLeavesAWholeCacheOrNone) {
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    TempDir dir;
    const DataSource source = {.paths = {dir.Write("text", std::string(1 << 20, 'a'))}};
    BuildAndKill(dir, source, 0.99, 1 + static_cast<int>(random() % 6000));
    const auto cache = Must(OpenIn(dir, source));
    EXPECT_NE(cache->origin(), TokenCache::Origin::kRebuilt) << cache->origin_detail();
    EXPECT_EQ(cache->tokens(), (1 << 20) + 1);
    EXPECT_THAT(dir.Names("cache"), SizeIs(1));
  }
}

TEST(TemporaryFileTest, SweepSparesFilesThatAreBeingWritten) {
  TempDir dir;
  std::filesystem::create_directory(dir.path() + "/t");
  {
    TemporaryFile file = Must(TemporaryFile::Create(dir.path() + "/t", "one"));
    dir.Write("t/two.tmp.1-0", "left by a killed process");
    dir.Write("t/other", "not temporary");
    TemporaryFile::RemoveStale(dir.path() + "/t");
    EXPECT_THAT(dir.Names("t"), SizeIs(2));
    ASSERT_TRUE(file.Append(std::as_bytes(std::span("abc", 3))).ok());
    ASSERT_TRUE(file.Commit(dir.path() + "/t/one").ok());
  }
  EXPECT_EQ(ReadFile(dir.path() + "/t/one"), "abc");
  { Must(TemporaryFile::Create(dir.path() + "/t", "three")); }
  EXPECT_THAT(dir.Names("t"), SizeIs(2));  // what was not committed is gone
}

TEST(TemporaryFileTest, ALargeFileLeavesRoomForOthers) {
  TempDir dir;
  TemporaryFile file =
      Must(TemporaryFile::Create(dir.path(), "x", std::numeric_limits<int64_t>::max()));
  const std::vector<std::byte> megabyte(1 << 20);
  int64_t written = 0;
  absl::Status status;
  while ((status = file.Append(megabyte)).ok() && written < 100) ++written;
  EXPECT_EQ(ReasonOf(status), reason::kDiskInsufficient) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("are kept free"));
  EXPECT_GE(written, 16);
  EXPECT_LE(written, 18);
}

TEST(TemporaryFileTest, ErrorsNameTheFile) {
  const absl::Status status = TemporaryFile::Create("/proc/none", "x").status();
  EXPECT_EQ(ReasonOf(status), reason::kIoError);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/none/x"));
}

}  // namespace
}  // namespace penstock
