// SPDX-License-Identifier: Apache-2.0
// The JSON Schemas: they accept every shipped document and everything the program writes, and agree
// with the readers about documents in which a key is missing, added or of another kind.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/cluster_reader.h"
#include "apps/constraints_reader.h"
#include "apps/document_schemas.h"
#include "apps/whatif_report.h"
#include "graph/graph_document.h"
#include "plan/plan_json.h"
#include "search/cost_graph.h"
#include "support/catch.h"
#include "support/json_schema.h"
#include "support/run_program.h"

namespace meshplan::schema_test {
namespace {

using nlohmann::json;
using test::file_text;
using test::JsonSchema;
using test::run_program;
using test::TemporaryFolder;
namespace fs = std::filesystem;

const std::string kSource = MESHPLAN_SOURCE_DIR;

const JsonSchema& schema_of(const std::string& kind) {
  static const std::map<std::string, JsonSchema> kSchemas = [] {
    std::map<std::string, JsonSchema> made;
    for (const DocumentSchema& schema : document_schemas())
      made.emplace(schema.kind, JsonSchema(json::parse(schema.text)));
    return made;
  }();
  return kSchemas.at(kind);
}

/// Whether the program's own reader accepts the text.
bool reads(const std::string& kind, const std::string& text) {
  if (kind == "graph") return read_graph_document(text, "f").has_value();
  if (kind == "cluster") return parse_cluster(text, "f").has_value();
  if (kind == "constraints") return parse_constraints(text, "f").has_value();
  if (kind == "plan") return read_plan(text, "f").has_value();
  if (kind == "whatif") return read_what_if(text, "f").has_value();
  return parse_cost_graph(text, "f").has_value();
}

/// One document of each kind, as rich as there is.
const std::map<std::string, std::string>& samples() {
  static const std::map<std::string, std::string> kSamples = [] {
    const TemporaryFolder folder;
    const std::string plan = folder.file("plan.json");
    const std::string problem = folder.file("problem.json");
    const std::string graph = folder.file("graph.json");
    const std::string sweep = folder.file("sweep.json");
    const std::string mlp = kSource + "/examples/mlp/graph.json";
    const auto made = run_program({"plan",
                                   mlp,
                                   "--cluster",
                                   "dgx-a100-80g",
                                   "--devices",
                                   "8",
                                   "--mesh",
                                   "dp=8",
                                   "--baseline",
                                   "ddp",
                                   "--dump-cost-graph",
                                   problem,
                                   "-o",
                                   plan});
    REQUIRE(made.exit_code == 0);
    REQUIRE(run_program({"export", plan, "--graph", mlp, "--to", "graph", "-o", graph}).exit_code ==
            0);
    // points of every kind: with a plan, without, on a machine that cannot be
    const std::vector<std::string> points = {"whatif",
                                             mlp,
                                             "--cluster",
                                             "dgx-a100-80g",
                                             "--cluster",
                                             kSource + "/examples/tiny_llama/four_gpus.json",
                                             "--devices",
                                             "4,6",
                                             "--memory",
                                             "4200MiB,80GiB",
                                             "--network",
                                             "1x,0.5x",
                                             "--format",
                                             "json",
                                             "-o",
                                             sweep};
    REQUIRE(run_program(points).exit_code == 0);
    return std::map<std::string, std::string>{
        {"plan", file_text(plan)},
        {"whatif", file_text(sweep)},
        {"cost_graph", file_text(problem)},
        {"graph", file_text(graph)},
        {"cluster", file_text(kSource + "/configs/clusters/dgx-h100.json")},
        {"constraints", file_text(kSource + "/tests/fuzz/seeds/constraints/everything.json")}};
  }();
  return kSamples;
}

TEST_CASE("there is a schema of every document, and the program prints it") {
  REQUIRE(document_schemas().size() == samples().size());
  for (const DocumentSchema& schema : document_schemas()) {
    const std::string kind(schema.kind);
    INFO(kind);
    CHECK(samples().contains(kind));
    const auto run = run_program({"schema", kind});
    CHECK(run.exit_code == 0);
    CHECK(run.out == schema.text);
    CHECK(run.out == file_text(kSource + "/schemas/" + kind + ".json"));
  }
  const auto unknown = run_program({"schema", "grph"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("KIND: grph not in {cluster,constraints,cost_graph,graph,plan,whatif}") !=
        std::string::npos);
}

TEST_CASE("every shipped document and everything the program writes fits its schema") {
  for (const auto& [kind, text] : samples()) {
    INFO(kind);
    CHECK(schema_of(kind).fault(json::parse(text)) == "");
    CHECK(reads(kind, text));
  }
  std::size_t seen = 0;
  for (const char* folder : {"/configs/clusters", "/examples", "/tests/fuzz/seeds"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource + folder)) {
      if (entry.path().extension() != ".json") continue;
      const json document = json::parse(file_text(entry.path().string()));
      if (!document.contains("schema")) continue;  // a config.json, the contest's format
      std::string kind = document["schema"];
      kind = kind.substr(kind.find('.') + 1);
      kind.resize(kind.find('/'));
      INFO(entry.path().string());
      CHECK(schema_of(kind).fault(document) == "");
      ++seen;
    }
  }
  CHECK(seen >= 15);
}

/// Calls `visit` with every changed copy of the document, one change each: a key added, a key taken
/// away, a value of another kind.
void for_each_change(const json& document,
                     const std::function<void(const json&, const std::string&)>& visit) {
  const json flat = document.flatten();
  std::map<std::string, bool> places;  // of objects and their members
  for (const auto& [pointer, value] : flat.items()) {
    std::string path = pointer;
    while (!path.empty()) {
      path.resize(path.rfind('/'));
      places[path] = true;
    }
  }
  for (const auto& [path, unused] : places) {
    const json::json_pointer at(path);
    json changed = document;
    if (!document.at(at).is_object()) continue;
    changed[at]["no_such_key"] = 1;
    visit(changed, path + ": a key more");
    for (const auto& [key, value] : document.at(at).items()) {
      changed = document;
      changed[at].erase(key);
      visit(changed, path + "/" + key + ": taken away");
      changed = document;
      changed[at][key] = value.is_boolean() ? json(1.5) : json(true);
      visit(changed, path + "/" + key + ": another kind");
    }
  }
}

TEST_CASE("schemas and readers agree about keys that are missing, unknown or of another kind") {
  for (const auto& [kind, text] : samples()) {
    json document = json::parse(text);
    // a few entries of a kind say it all
    for (const char* list :
         {"operators", "nodes", "edges", "redistributions", "groups", "at_peak"}) {
      if (document.contains(list) && document[list].size() > 2 && kind != "graph")
        document[list].erase(document[list].begin() + 2, document[list].end());
    }
    if (kind == "plan") document.erase("order");
    std::size_t agreed = 0;
    for_each_change(document, [&, name = kind](const json& changed, const std::string& what) {
      const std::string fault = schema_of(name).fault(changed);
      const bool read = reads(name, changed.dump());
      INFO(name << what << "; " << fault);
      // what a reader takes fits; what does not fit may still have names that refer to nothing
      if (read) CHECK(fault == "");
      // options and message sizes have names that the schema does not list; and what must be there
      // may depend on other keys
      const bool open = what.find("/options") != std::string::npos ||
                        what.find("/collectives") != std::string::npos ||
                        what.ends_with("taken away");
      if (!open && !read) CHECK(fault != "");
      if (fault.empty() == read) ++agreed;
    });
    INFO(kind);
    CHECK(agreed > 10);
  }
}

}  // namespace
}  // namespace meshplan::schema_test
