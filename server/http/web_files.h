// The files of the web page, embedded when the daemon is built: server/http/web/ and the chart
// library of the distribution. Made by embed_web_files.cmake.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::server {

struct WebFile {
  std::string_view name;  // "app.js"; "index.html" is also what "/" gives
  std::string_view content_type;
  std::string_view bytes;
};

// By the segments of a path; null if there is none.
const WebFile* FindWebFile(const std::vector<std::string>& path);

}  // namespace penstock::server
