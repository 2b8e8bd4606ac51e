// SPDX-License-Identifier: Apache-2.0
// Catch2 2 and 3 under one name: tests include this file only.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
