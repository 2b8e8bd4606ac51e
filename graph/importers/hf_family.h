// SPDX-License-Identifier: Apache-2.0
// The kinds of models that the Hugging Face importer builds. Decoders are rows of
// hf_architecture.cpp; another kind is one build function and a row in hf.cpp.
#pragma once

#include "graph/importers/hf_architecture.h"
#include "graph/importers/hf_config.h"

namespace meshplan {

Result<HfImport> build_decoder(const HfDecoder& decoder,
                               const HfConfig& config,
                               const HfOptions& options);
Result<HfImport> build_bert(const HfConfig& config, const HfOptions& options);
Result<HfImport> build_t5(const HfConfig& config, const HfOptions& options);
Result<HfImport> build_vit(const HfConfig& config, const HfOptions& options);
Result<HfImport> build_whisper(const HfConfig& config, const HfOptions& options);

}  // namespace meshplan
