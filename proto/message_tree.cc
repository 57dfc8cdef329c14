// Both readers drive one TreeBuilder with events, so the bounds hold for both. yaml-cpp and
// nlohmann-json throw; nothing they throw leaves this file.

#include "proto/message_tree.h"

#include <exception>
#include <istream>
#include <iterator>
#include <limits>
#include <streambuf>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/observed_chars.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace penstock {
namespace {

absl::Status Refused(absl::string_view origin, int64_t line, absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
               absl::StrCat(origin, ":", line, ": ", what),
               {{"file", std::string(origin)}, {"line", absl::StrCat(line)}});
}

// What a reader throws to stop its library in the middle of a document.
struct Stop {
  int64_t line;
  std::string what;
};

class TreeBuilder {
 public:
  void Scalar(int64_t line, MessageTree::Kind kind, std::string text) {
    if (ExpectsKey()) {
      TakeKey(line, std::move(text));
      return;
    }
    MessageTree node;
    node.kind = kind;
    node.line = line;
    node.text = std::move(text);
    Attach(std::move(node));
  }

  void Begin(int64_t line, MessageTree::Kind kind) {
    if (ExpectsKey()) throw Stop{line, "a key must be a plain name, not a list or a map"};
    if (open_.size() >= kMaxMessageTreeDepth) {
      throw Stop{line, absl::StrCat("nested deeper than ", kMaxMessageTreeDepth, " levels")};
    }
    MessageTree node;
    node.kind = kind;
    node.line = line;
    open_.push_back(std::move(node));
  }

  void End() {
    MessageTree node = std::move(open_.back());
    open_.pop_back();
    Attach(std::move(node));
  }

  MessageTree Take() && { return std::move(root_); }

 private:
  bool ExpectsKey() const {
    return !open_.empty() && open_.back().kind == MessageTree::Kind::kMap &&
           open_.back().keys.size() == open_.back().members.size();
  }

  void TakeKey(int64_t line, std::string text) {
    if (text == "<<") throw Stop{line, "merge keys (<<) are not supported: write the keys out"};
    open_.back().keys.push_back(std::move(text));
    open_.back().key_lines.push_back(line);
  }

  void Attach(MessageTree node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().kind == MessageTree::Kind::kMap) {
      open_.back().members.push_back(std::move(node));
    } else {
      open_.back().items.push_back(std::move(node));
    }
  }

  MessageTree root_;
  std::vector<MessageTree> open_;  // outermost first
};

// What a null was written as: yaml-cpp reports it without its text, which a string field wants.
std::string NullText(absl::string_view text, int position) {
  if (position < 0 || static_cast<size_t>(position) >= text.size()) return "";
  const absl::string_view rest = text.substr(static_cast<size_t>(position));
  if (rest[0] == '~') return "~";
  if (absl::StartsWithIgnoreCase(rest, "null")) return std::string(rest.substr(0, 4));
  return "";
}

class YamlReader : public YAML::EventHandler {
 public:
  YamlReader(absl::string_view text, TreeBuilder& builder) : text_(text), builder_(builder) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Check(mark, "", anchor);
    builder_.Scalar(Line(mark), MessageTree::Kind::kNull, NullText(text_, mark.pos));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Stop{Line(mark), "aliases (*name) are not supported: write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Check(mark, tag, anchor);
    builder_.Scalar(Line(mark), MessageTree::Kind::kScalar, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Check(mark, tag, anchor);
    builder_.Begin(Line(mark), MessageTree::Kind::kList);
  }
  void OnSequenceEnd() override { builder_.End(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Check(mark, tag, anchor);
    builder_.Begin(Line(mark), MessageTree::Kind::kMap);
  }
  void OnMapEnd() override { builder_.End(); }

 private:
  static int64_t Line(const YAML::Mark& mark) { return int64_t{mark.line} + 1; }

  // "?" and "!" are what yaml-cpp gives plain and quoted nodes without a tag.
  static void Check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) {
      throw Stop{Line(mark), "anchors (&name) are not supported: write the value out"};
    }
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Stop{Line(mark), absl::StrCat("the tag ", tag,
                                          " is not supported: a value has the type of its key")};
    }
  }

  absl::string_view text_;
  TreeBuilder& builder_;
};

// Reads a string_view without copying it.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(absl::string_view text) {
    char* begin = const_cast<char*>(text.data());  // the get area is never written
    setg(begin, begin, begin + text.size());
  }
};

absl::StatusOr<MessageTree> ParseYaml(absl::string_view text, absl::string_view origin) {
  TreeBuilder builder;
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    YamlReader reader(text, builder);
    parser.HandleNextDocument(reader);
    TreeBuilder second;
    YamlReader second_reader(text, second);
    if (parser.HandleNextDocument(second_reader)) {
      throw Stop{std::move(second).Take().line, "a second document (---): one file is one message"};
    }
  } catch (const Stop& stop) {
    return Refused(origin, stop.line, stop.what);
  } catch (const YAML::Exception& error) {
    return Refused(origin, int64_t{error.mark.line} + 1, absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    return Refused(origin, 1, absl::StrCat("not YAML: ", error.what()));
  }
  return std::move(builder).Take();
}

// Where nlohmann's lexer is: its events carry no position.
struct JsonPosition {
  int64_t line = 1;
  char last = ' ';
  void Pass(char c) {
    last = c;
    if (c == '\n') ++line;
  }
};

class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonReader(const JsonPosition* position, TreeBuilder& builder)
      : position_(position), builder_(builder) {}

  bool null() override { return Value(MessageTree::Kind::kNull, "null"); }
  bool boolean(bool value) override { return Value(kScalar, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Number(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(absl::StrCat(value)); }
  bool number_float(number_float_t, const string_t& written) override { return Number(written); }
  bool string(string_t& value) override { return Value(kScalar, std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override { return Value(kScalar, std::move(value)); }
  bool start_object(std::size_t) override { return Begin(MessageTree::Kind::kMap); }
  bool end_object() override { return End(); }
  bool start_array(std::size_t) override { return Begin(MessageTree::Kind::kList); }
  bool end_array() override { return End(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string what = error.what();
    what.erase(0, std::min(what.size(), what.find("] ") + 2));  // the exception's number
    // What was read last may end within a character.
    throw Stop{position_->line, absl::StrCat("not JSON: ", ReplaceInvalidUtf8(what))};
  }

 private:
  static constexpr MessageTree::Kind kScalar = MessageTree::Kind::kScalar;

  // The lexer sees the end of a number only when it has read the character after it.
  bool Number(std::string text) {
    builder_.Scalar(position_->line - (position_->last == '\n' ? 1 : 0), kScalar, std::move(text));
    return true;
  }
  bool Value(MessageTree::Kind kind, std::string text) {
    builder_.Scalar(position_->line, kind, std::move(text));
    return true;
  }
  bool Begin(MessageTree::Kind kind) {
    builder_.Begin(position_->line, kind);
    return true;
  }
  bool End() {
    builder_.End();
    return true;
  }

  const JsonPosition* position_;
  TreeBuilder& builder_;
};

absl::StatusOr<MessageTree> ParseJson(absl::string_view text, absl::string_view origin) {
  TreeBuilder builder;
  JsonPosition position;
  try {
    JsonReader reader(&position, builder);
    nlohmann::json::sax_parse(ObservedChars(text.data(), &position),
                              ObservedChars(text.data() + text.size(), &position), &reader);
  } catch (const Stop& stop) {
    return Refused(origin, stop.line, stop.what);
  } catch (const std::exception& error) {
    return Refused(origin, position.line, absl::StrCat("not JSON: ", error.what()));
  }
  return std::move(builder).Take();
}

}  // namespace

absl::Status CheckIsText(absl::string_view text, absl::string_view origin) {
  int64_t line = 1;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8SequenceLength({text.data() + at, text.size() - at});
    if (length == 0) return Refused(origin, line, "not UTF-8 text");
    const char c = text[at];
    if (absl::ascii_iscntrl(c) && c != '\n' && c != '\r' && c != '\t') {
      return Refused(origin, line,
                     absl::StrCat("a control character (byte ", static_cast<int>(c),
                                  "), which no YAML or JSON has"));
    }
    if (c == '\n') ++line;
    at += length;
  }
  return absl::OkStatus();
}

absl::StatusOr<MessageTree> ParseMessageTree(absl::string_view text, absl::string_view origin) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // a byte order mark says nothing
  PENSTOCK_RETURN_IF_ERROR(CheckIsText(text, origin));
  const absl::string_view stripped = absl::StripLeadingAsciiWhitespace(text);
  if (stripped.empty()) return Refused(origin, 1, "the file is empty");
  return stripped[0] == '{' ? ParseJson(text, origin) : ParseYaml(text, origin);
}

}  // namespace penstock
