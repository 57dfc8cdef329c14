#pragma once

#include <memory>
#include <string>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {

// Made by the file of their name.
std::unique_ptr<Target> MakeJobFileTarget(const std::string& testdata);
std::unique_ptr<Target> MakeJobSpecTarget(const std::string& testdata);
std::unique_ptr<Target> MakePlanTarget(const std::string& testdata);
std::unique_ptr<Target> MakeRpcTarget(const std::string& testdata);
std::unique_ptr<Target> MakeHttpTarget(const std::string& testdata);

}  // namespace penstock::fuzz
