#include "tests/fuzz/data_seeds.h"

namespace penstock::fuzz {

const std::vector<std::string>& JsonRows() {
  static const auto* const rows = new std::vector<std::string>{
      R"({"instruction":"Add é","input":"1 2","output":"3","history":[["a","b"]],"system":"s"})",
      R"({"conversations":[{"from":"human","value":"q\n\"x\""},{"from":"gpt","value":"a"}]})",
      R"({"conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"},
        {"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},
        {"from":"observation","value":"1"},{"from":"gpt","value":"a"}],"tools":"[]","system":"s"})",
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[
        {"function":{"name":"f","arguments":{"x":1.5e3}}}]},{"role":"tool","content":"4"},
        {"role":"assistant","content":[{"type":"text","text":"a"}],"train":true}],"tools":"[{\"name\":\"f\"}]"})",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},
        {"role":"assistant","content":"a","weight":0},{"role":"user","content":"r"},
        {"role":"assistant","content":"b","reasoning_content":"t"}]})",
      R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]})",
      R"({"prompt":"p","completion":"c","text":"\u00e9\ud83d\ude00"})",
      R"({"text":"some text, é 日本"})",
      R"({"ids":[5,6,7,8],"labels":[-100,-100,7,8]})",
      R"([1,2,3,2147483647])"};
  return *rows;
}

const std::vector<std::string>& CsvFiles() {
  static const auto* const files = new std::vector<std::string>{
      "instruction,input,output\r\n\"Add, \"\"1\"\"\",2,3\r\n\"two\nlines\",,\"\"\n",
      "text\nhello\n\"\"\n\n\xc3\xa9\n", "prompt,completion\n,\"\n", "a,b,a\n1,2,3\n"};
  return *files;
}

const std::vector<std::string>& DataDictionary() {
  static const auto* const pieces = new std::vector<std::string>{"\"",
                                                                 "\"\"",
                                                                 ",",
                                                                 "\n",
                                                                 "\r\n",
                                                                 "[",
                                                                 "]",
                                                                 "{",
                                                                 "}",
                                                                 ":",
                                                                 "\\",
                                                                 std::string("\0", 1),
                                                                 "\xff",
                                                                 "\t",
                                                                 "[[",
                                                                 "{}",
                                                                 "null",
                                                                 "\\ud800",
                                                                 "1e999",
                                                                 "\"from\"",
                                                                 "-0.0",
                                                                 "true",
                                                                 "[{",
                                                                 "}]",
                                                                 "\"role\":\"tool\"",
                                                                 "\xe2\x82",
                                                                 "\xef\xbb\xbf",
                                                                 "\"train\":false",
                                                                 "\"content\":null",
                                                                 "-100",
                                                                 "4294967296"};
  return *pieces;
}

}  // namespace penstock::fuzz
