// SPDX-License-Identifier: Apache-2.0
// Batch requests: a JSON array of requests in, a JSON array of answers out.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "graph/json.h"
#include "lib/result.h"

namespace meshplan {

/// Writes the answer to one request (an object). Errors: `where` is request.where() and below.
using AnswerRequest = std::function<Result<void>(const JsonCursor& request, JsonWriter& answer)>;

/// Answers every request of the array `text` in order, one per line. A request that fails is
/// answered by {"error": {"code", "where", "message"}} with a JSON Pointer from the array's root
/// and does not stop the others; keys given twice or nesting beyond the reader's limit are such
/// failures. Errors: kInput (not JSON), kType (no array); `file` is their place.
Result<std::string> answer_batch(std::string_view text,
                                 const std::string& file,
                                 const AnswerRequest& answer);

}  // namespace meshplan
