# cmake -DOUTPUT=web_files.cc -DFILES="a.js;b.css" -P embed_web_files.cmake
# Writes the bytes of the files into a C++ source, as arrays, since a string literal may be too long.
set(TYPE_html "text/html; charset=utf-8")
set(TYPE_js "text/javascript; charset=utf-8")
set(TYPE_css "text/css; charset=utf-8")
set(ARRAYS)
set(ROWS)
set(INDEX 0)
foreach(FILE ${FILES})
  get_filename_component(NAME ${FILE} NAME)
  string(REGEX REPLACE ".*\\." "" EXTENSION ${NAME})
  file(READ ${FILE} BYTES HEX)
  string(REGEX REPLACE "(..)" "0x\\1," BYTES "${BYTES}")
  string(APPEND ARRAYS "constexpr unsigned char kBytes${INDEX}[] = {${BYTES}};\n")
  string(APPEND ROWS "    {\"${NAME}\", \"${TYPE_${EXTENSION}}\", Text(kBytes${INDEX})},\n")
  math(EXPR INDEX "${INDEX} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/http/web_files.h\"

namespace penstock::server {
namespace {

${ARRAYS}
template <size_t kSize>
std::string_view Text(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

}  // namespace

const WebFile* FindWebFile(const std::vector<std::string>& path) {
  static const WebFile files[] = {
${ROWS}  };
  if (path.size() > 1) return nullptr;
  const std::string name = path.empty() ? \"index.html\" : path[0];
  for (const WebFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

}  // namespace penstock::server
")
