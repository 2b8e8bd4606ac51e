// SPDX-License-Identifier: Apache-2.0
// The readable summary of a plan: what `meshplan plan` prints.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace meshplan {

/// Rows of texts under headings; `right` says which columns are numbers.
struct SummaryTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> rows;
};

struct Summary {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  ///< label, value
  std::vector<SummaryTable> tables;                        ///< without empty ones
  std::vector<std::string> notes;
};

/// Mesh, times, memory, the ten costliest operators and redistributions, one row per distinct
/// layer, the search and what it proves, the baselines asked for. Equal layers share a row.
Summary summarise(const Plan& plan);

/// "dp=2 (zero1), tp=8": sizes, and the roles that the names do not say.
std::string mesh_text(const PlanMesh& mesh);

/// Aligned columns without colour; long names are shortened in the middle.
std::string summary_text(const Summary& summary);
/// GitHub-flavoured tables.
std::string summary_markdown(const Summary& summary);

}  // namespace meshplan
