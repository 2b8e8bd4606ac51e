// SPDX-License-Identifier: Apache-2.0
#include "lib/result.h"

namespace meshplan {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kType:
      return "type";
    case ErrorCode::kValue:
      return "value";
    case ErrorCode::kUnknownAxis:
      return "unknown_axis";
    case ErrorCode::kRank:
      return "rank";
    case ErrorCode::kDuplicate:
      return "duplicate";
    case ErrorCode::kOrder:
      return "order";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kMissing:
      return "missing";
    case ErrorCode::kOverflow:
      return "overflow";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kInput:
      return "input";
  }
  return "value";
}

std::string to_string(const Error& error) {
  return error.where.empty() ? error.message : error.where + ": " + error.message;
}

}  // namespace meshplan
