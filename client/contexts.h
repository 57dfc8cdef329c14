// Names for daemons, as `penstock context` keeps them: $XDG_CONFIG_HOME/penstock/contexts.json
// (~/.config/penstock/contexts.json), mode 0600.
//   {"current": "lab", "contexts": {"lab": {"endpoint": "lab.example:7070"}}}
// The Python client reads it too.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/endpoint.h"

namespace penstock::client {

struct Contexts {
  std::string current;  // a key of `endpoints`, or empty
  std::map<std::string, std::string> endpoints;
};

// Empty if neither XDG_CONFIG_HOME nor HOME is set: then there are no contexts.
std::string ContextsPath(const GetEnvironment& environment);

// None if the file, or `path`, is not there. InvalidArgument / REQUEST_INVALID for a file that is
// something else.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);

// Replaces the file whole, so that a reader sees the old one or the new one.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);

// 1-63 characters [A-Za-z0-9._-].
absl::Status CheckContextName(const std::string& name);

}  // namespace penstock::client
