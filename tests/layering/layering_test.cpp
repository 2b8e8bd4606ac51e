// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "layering/source_rules.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::layering_test {

using namespace test;

namespace {

const std::string kLicence = "// SPDX-License-Identifier: Apache-2.0\n";

/// A tree that has the true order of the modules and the files that a test adds.
class Tree {
 public:
  Tree() {
    std::filesystem::create_directories(folder_.path() / "cmake");
    std::filesystem::copy_file(
        std::filesystem::path(MESHPLAN_SOURCE_DIR) / "cmake" / "meshplan_module.cmake",
        folder_.path() / "cmake" / "meshplan_module.cmake");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    folder_.write(path, text);
  }
  std::vector<std::string> faults() const { return SourceRules(folder_.path()).faults(); }

 private:
  TemporaryFolder folder_;
};

/// The faults of a tree with just this file.
std::vector<std::string> faults_of(const std::string& path, const std::string& text) {
  Tree tree;
  tree.write(path, text);
  return tree.faults();
}

using Faults = std::vector<std::string>;

}  // namespace

TEST_CASE("the project keeps its own rules") {
  SourceRules rules(MESHPLAN_SOURCE_DIR);
  std::string all;
  for (const std::string& fault : rules.faults()) all += "\n" + fault;
  INFO("faults:" << all);
  CHECK(all.empty());
  CHECK(rules.source_files() > 100);
}

TEST_CASE("the modules from low to high are those of the build") {
  CHECK(module_order(MESHPLAN_SOURCE_DIR) ==
        std::vector<std::string>{"lib", "graph", "cost_model", "plan", "search", "apps"});
}

TEST_CASE("a module may include itself and what is below it, nothing above it") {
  CHECK(faults_of("plan/a.cpp",
                  kLicence + "#include \"plan/a.h\"\n#include \"cost_model/b.h\"\n#include <map>\n")
            .empty());
  CHECK(faults_of("graph/a.cpp", kLicence + "#include \"search/b.h\"\n") ==
        Faults{"graph/a.cpp:2: graph may not include search, which is above it"});
  CHECK(faults_of("lib/deep/a.cpp", kLicence + "  #  include \"graph/b.h\"\n") ==
        Faults{"lib/deep/a.cpp:2: lib may not include graph, which is above it"});
  CHECK(faults_of("search/a.cpp", kLicence + "#include \"apps/command.h\"\n") ==
        Faults{"search/a.cpp:2: search may not include apps, which is above it"});
}

TEST_CASE("includes begin with a module's name") {
  CHECK(faults_of("graph/a.cpp", kLicence + "#include \"a.h\"\n").size() == 1);
  CHECK(faults_of("graph/a.cpp", kLicence + "#include \"graph/../search/a.h\"\n").size() == 1);
  CHECK(faults_of("tests/graph/a_test.cpp", kLicence + "#include \"support/none.h\"\n").size() ==
        1);
  // Benchmarks may use what supports the tests.
  Tree tree;
  tree.write("tests/support/prices.h", kLicence + "#pragma once\n");
  tree.write("bench/a_bench.cpp", kLicence + "#include \"support/prices.h\"\n");
  CHECK(tree.faults().empty());
  CHECK(faults_of("bench/a_bench.cpp", kLicence + "#include \"support/none.h\"\n").size() == 1);
  CHECK(faults_of("lib/a.cpp", kLicence + "#include \"support/none.h\"\n").size() == 1);
}

TEST_CASE("third-party headers stay where they belong") {
  CHECK(faults_of("graph/a.cpp", kLicence + "#include <nlohmann/json.hpp>\n").empty());
  CHECK(faults_of("graph/a.h", kLicence + "#pragma once\n#include <nlohmann/json.hpp>\n") ==
        Faults{"graph/a.h:3: <nlohmann/json.hpp> may not be included in a header of graph"});
  CHECK(faults_of("lib/a.cpp", kLicence + "#include <nlohmann/json.hpp>\n") ==
        Faults{"lib/a.cpp:2: <nlohmann/json.hpp> may not be included in lib"});
  CHECK(faults_of("search/a.cpp", kLicence + "#include <spdlog/spdlog.h>\n") ==
        Faults{"search/a.cpp:2: <spdlog/spdlog.h> may not be included in search"});
  CHECK(faults_of("plan/a.cpp", kLicence + "#include <CLI/CLI.hpp>\n").size() == 1);
  CHECK(faults_of("cost_model/a.cpp", kLicence + "#include <zlib.h>\n").size() == 1);
  CHECK(faults_of("search/a.cpp", kLicence + "#include <unistd.h>\n").size() == 1);
  CHECK(faults_of("search/a.cpp", kLicence + "#include <boost/any.hpp>\n").size() == 1);
  CHECK(faults_of("apps/a.h",
                  kLicence + "#pragma once\n#include <CLI/CLI.hpp>\n#include <unistd.h>\n")
            .empty());
}

TEST_CASE("every file names its licence, every header guards itself, names say what is inside") {
  CHECK(faults_of("graph/a.cpp", "int a();\n").size() == 1);
  CHECK(faults_of("graph/CMakeLists.txt", "meshplan_module(graph)\n").size() == 1);
  CHECK(faults_of("tests/run.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n").empty());
  CHECK(faults_of("graph/a.h", kLicence + "int a();\n") ==
        Faults{"graph/a.h:1: a header needs #pragma once"});
  CHECK(faults_of("graph/string_utils.cpp", kLicence).size() == 1);
}

TEST_CASE("no file names a path of somebody's machine or leaves an open end") {
  const std::string path = std::string("/ho") + "me/someone/model.json";
  CHECK(faults_of("docs/a.md", "see " + path + "\n").size() == 1);
  CHECK(faults_of("docs/a.md",
                  "see a/ho"
                  "me/b and /operators/12\n")
            .empty());
  CHECK(faults_of("lib/a.cpp",
                  kLicence + "// TO"
                             "DO\n")
            .size() == 1);
}

}  // namespace meshplan::layering_test
