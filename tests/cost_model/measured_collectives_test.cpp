// SPDX-License-Identifier: Apache-2.0
// Collectives that somebody measured, against the model. A machine's curves are set from the rows
// that say `sets`, its error is measured on the others: other numbers of devices, other strides,
// other sizes. A row that is missed by more says `why`. The table is docs/fidelity.md's.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/cluster_reader.h"
#include "cost_model/collective_model.h"
#include "support/catch.h"

namespace meshplan::measured_collectives_test {

using nlohmann::json;

namespace {

constexpr double kTolerance = 0.15;

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Cluster cluster_of(const json& machine) {
  auto cluster = machine.contains("shipped")
                     ? load_cluster(machine.at("shipped").get<std::string>())
                     : parse_cluster(machine.at("cluster").dump(), "measured_collectives.json");
  if (cluster && machine.contains("devices"))
    cluster = cluster->resized(machine.at("devices").get<std::int64_t>());
  if (!cluster) FAIL(to_string(cluster.error()));
  // what was measured is one call of the library
  if (machine.value("single_calls", false)) cluster->efficiency.algorithms.staged = false;
  return *cluster;
}

Collective collective_of(const json& row) {
  for (const Collective c : kNetworkCollectives) {
    if (row.at("collective") == collective_name(c)) return c;
  }
  FAIL("no such collective: " << row.at("collective"));
  return {};
}

/// The call runs in all groups of the mesh's axes at once, as it was measured.
double predicted(const Cluster& cluster, const json& row) {
  const auto mesh = row.at("mesh").get<std::vector<std::int64_t>>();
  const auto model = CollectiveModel::make(cluster, mesh);
  if (!model) FAIL(to_string(model.error()));
  AxisSet axes = 0;
  for (const json& axis : row.at("axes")) axes |= AxisSet{1} << (axis.get<std::string>()[0] - 'x');
  return model->time({collective_of(row), axes, row.at("bytes").get<Bytes>()}).value;
}

std::string number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

struct Table {
  std::string text;
  std::vector<double> errors;  ///< of the rows that set nothing
  int missed = 0;
};

void add_row(Table& table, const json& row, double seconds) {
  const double measured = row.at("us").get<double>() * 1e-6;
  const double error = seconds / measured - 1.0;
  const bool sets = row.value("sets", false);
  const bool missed = std::abs(error) > kTolerance;
  INFO(row.at("what") << ": " << seconds << " s, measured " << measured);
  CHECK(missed == row.contains("why"));
  table.text += "| " + row.at("what").get<std::string>() + " | " + number(seconds * 1e6, 1) +
                " | " + number(measured * 1e6, 1) + " | " + (error > 0 ? "+" : "") +
                number(100 * error, 1) + " %" + (sets ? " (sets)" : "") + " | " +
                row.value("why", std::string()) + " |\n";
  if (sets) return;
  table.errors.push_back(std::abs(error));
  if (missed) ++table.missed;
}

std::string summary(const std::string& who, const Table& table) {
  double sum = 0;
  double most = 0;
  for (const double e : table.errors) {
    sum += e;
    most = std::max(most, e);
  }
  const auto count = static_cast<double>(table.errors.size());
  return who + ": " + std::to_string(table.errors.size()) + " rows that set nothing, mean error " +
         number(count > 0 ? 100 * sum / count : 0, 1) + " %, largest " + number(100 * most, 1) +
         " %, " + std::to_string(table.missed) + " above 15 %.\n";
}

const std::string kBegin = "<!-- measured collectives: written by a test -->\n";
const std::string kEnd = "<!-- end of measured collectives -->\n";

}  // namespace

TEST_CASE("measured collectives are reproduced on other device counts and strides", "[fidelity]") {
  const json data =
      json::parse(content(std::string(MESHPLAN_TEST_DATA) + "/measured_collectives.json"));
  std::string text;
  Table all;
  for (const json& machine : data.at("machines")) {
    const Cluster cluster = cluster_of(machine);
    Table table;
    for (const json& row : machine.at("rows")) add_row(table, row, predicted(cluster, row));
    text +=
        "\n### " + cluster.name + "\n\nSource: " + machine.at("source").get<std::string>() + ".\n" +
        summary("Here", table) +
        "\n| collective | predicted, us | measured, us | error | why |\n|---|---|---|---|---|\n" +
        table.text;
    all.errors.insert(all.errors.end(), table.errors.begin(), table.errors.end());
    all.missed += table.missed;
  }
  text = summary("In all", all) + text;
  CHECK(all.errors.size() > 100);

  const std::string path = std::string(MESHPLAN_SOURCE_DIR) + "/docs/fidelity.md";
  const std::string page = content(path);
  const std::size_t begin = page.find(kBegin);
  const std::size_t end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t first = begin + kBegin.size();
  if (std::getenv("MESHPLAN_UPDATE_EXAMPLES") != nullptr) {
    std::ofstream(path) << page.substr(0, first) << text << page.substr(end);
  } else {
    CHECK(page.substr(first, end - first) == text);
  }
}

}  // namespace meshplan::measured_collectives_test
