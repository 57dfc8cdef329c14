#include "tests/engine/train/power_cut.h"

#include <filesystem>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/check.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock::testing {

DiskModel::Node& DiskModel::ParentOf(const std::string& path, std::string& name) {
  std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  PENSTOCK_CHECK(!parts.empty(), path);
  name = parts.back();
  parts.pop_back();
  Node* node = root_.get();
  for (const std::string& part : parts) {
    // What was there before the record began, or on another way, is taken to be there.
    std::shared_ptr<Node>& next = node->names[part];
    if (next == nullptr) next = node->synced_names[part] = std::make_shared<Node>();
    node = next.get();
  }
  return *node;
}

DiskModel::Node& DiskModel::Find(const std::string& path) {
  std::string name;
  Node& parent = ParentOf(path, name);
  std::shared_ptr<Node>& node = parent.names[name];
  if (node == nullptr) node = parent.synced_names[name] = std::make_shared<Node>();
  return *node;
}

void DiskModel::Apply(const FileCall& call) {
  using Kind = FileCall::Kind;
  if (!call.done) return;
  std::string name, target_name;
  switch (call.kind) {
    case Kind::kCreate:
    case Kind::kMakeDirectory: {
      auto node = std::make_shared<Node>();
      node->is_file = call.kind == Kind::kCreate;
      ParentOf(call.path, name).names[name] = std::move(node);
      return;
    }
    case Kind::kWrite: {
      std::string& content = Find(call.path).content;
      const size_t end = static_cast<size_t>(call.offset) + call.data.size();
      if (content.size() < end) content.resize(end);
      content.replace(static_cast<size_t>(call.offset), call.data.size(), call.data);
      return;
    }
    case Kind::kReserve:
      return;
    case Kind::kSync: {
      Node& node = call.path.empty() ? *root_ : Find(call.path);
      node.synced_content = node.content;
      node.synced_names = node.names;
      return;
    }
    case Kind::kRename: {
      Node& parent = ParentOf(call.path, name);
      std::shared_ptr<Node> moved = std::move(parent.names[name]);
      parent.names.erase(name);
      ParentOf(call.target, target_name).names[target_name] = std::move(moved);
      return;
    }
    case Kind::kExchange: {
      Node& parent = ParentOf(call.path, name);
      std::swap(parent.names[name], ParentOf(call.target, target_name).names[target_name]);
      return;
    }
    case Kind::kRemove:
      ParentOf(call.path, name).names.erase(name);
      return;
  }
}

FileTree DiskModel::AfterPowerCut(Survivors survivors, uint64_t seed) const {
  std::mt19937_64 random(seed);
  FileTree tree;
  const std::function<void(const Node&, const std::string&)> add = [&](const Node& node,
                                                                       const std::string& path) {
    const bool some = survivors == Survivors::kSome;
    if (node.is_file) {
      std::string content = node.synced_content;
      if (survivors == Survivors::kContents || survivors == Survivors::kAll) content = node.content;
      if (some && random() % 2 == 0 && node.content != node.synced_content) {
        content = node.content.substr(0, random() % (node.content.size() + 1));
      }
      tree[path] = std::move(content);
      return;
    }
    if (!path.empty()) tree[path] = std::nullopt;
    const bool all_names = survivors == Survivors::kNames || survivors == Survivors::kAll ||
                           (some && random() % 2 == 0);
    for (const auto& [name, child] : all_names ? node.names : node.synced_names) {
      add(*child, path.empty() ? name : absl::StrCat(path, "/", name));
    }
  };
  add(*root_, "");
  return tree;
}

void MakeTree(const FileTree& tree, const std::string& directory) {
  for (const auto& [path, content] : tree) {  // a directory comes before what is in it
    const std::string full = absl::StrCat(directory, "/", path);
    if (content) {
      WriteFileOrDie(full, *content);
    } else {
      std::filesystem::create_directory(full);
    }
  }
}

}  // namespace penstock::testing
