// Rows of all formats, for the targets that damage data files.
#pragma once

#include <string>
#include <vector>

namespace penstock::fuzz {

const std::vector<std::string>& JsonRows();
const std::vector<std::string>& CsvFiles();
// What breaks rows of both.
const std::vector<std::string>& DataDictionary();

}  // namespace penstock::fuzz
