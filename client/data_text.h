// What InspectData says, as a page for people.
#pragma once

#include <string>

#include "penstock/v1/job.pb.h"

namespace penstock::client {

struct DataPageStyle {
  bool color = false;  // learned text is green; else it stands in {+ +}
  bool ids = false;    // the token ids under each piece of text
};

std::string DataPage(const v1::InspectDataResponse& data, const DataPageStyle& style);

}  // namespace penstock::client
