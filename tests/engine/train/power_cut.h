// What a power cut can leave of a directory, worked out from a record of the calls that changed it.
//
// The model is as strict as POSIX allows: what a file holds survives only as far as it was synced,
// and a name (made, moved or removed) only once its directory was. Less strict outcomes, which real
// file systems give more often, are variants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tests/engine/train/fault_files.h"

namespace penstock::testing {

enum class Survivors : uint8_t {
  kSynced,    // only what was synced
  kNames,     // every name, of contents only what was synced: files that are empty or short
  kContents,  // every content, of names only what was synced
  kAll,
  kSome,  // of each directory and each file one or the other, at random; files may be cut anywhere
};

// Path to content; nothing for directories.
using FileTree = std::map<std::string, std::optional<std::string>>;

class DiskModel {
 public:
  // Begins with an empty directory.
  DiskModel() : root_(std::make_shared<Node>()) {}
  void Apply(const FileCall& call);
  FileTree AfterPowerCut(Survivors survivors, uint64_t seed) const;

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    std::string content, synced_content;
    Names names, synced_names;
    bool is_file = false;
  };
  // The directory of `path`, and its last component in `name`.
  Node& ParentOf(const std::string& path, std::string& name);
  Node& Find(const std::string& path);

  std::shared_ptr<Node> root_;
};

// Makes the tree in a directory that is there and empty.
void MakeTree(const FileTree& tree, const std::string& directory);

}  // namespace penstock::testing
