#!/usr/bin/env python3
"""Tests of check_order.py and check_collectives.py: they report forbidden includes, and collective
operations that do not show it."""
import unittest

import check_collectives
from check_order import include_chains, listed_device_sources, violations


def lines(name, text, device_sources=()):
    return [number for number, _ in violations(name, text, device_sources)]


class Order(unittest.TestCase):
    def test_rooms_know_those_above_them_and_themselves(self):
        self.assertEqual(lines("lib/layout/a.cpp", '#include "layout/b.hpp"\n#include "comm/c.hpp"'), [])
        self.assertEqual(lines("lib/ops/a.cpp", '#include "base/b.hpp"\n#include "comm/c.hpp"'), [2])
        self.assertEqual(lines("lib/base/a.hpp", '# include "tensor/b.hpp"'), [1])
        self.assertEqual(lines("app/run.cpp", '#include "pipeline/run.hpp"'), [])

    def test_libraries_have_their_places(self):
        self.assertEqual(lines("lib/comm/a.hpp", "#include <mpi.h>"), [])
        self.assertEqual(lines("lib/store/a.hpp", "#include <mpi.h>\n#include <hdf5.h>"), [1])
        self.assertEqual(lines("app/run.cpp", "#include <hdf5_hl.h>"), [1])
        self.assertEqual(lines("lib/media/a.cpp", "#include <libavutil/opt.h>\n#include <png.h>"), [])
        self.assertEqual(lines("lib/store/a.cpp", "#include <libavutil/opt.h>\n#include <png.h>"),
                         [1, 2])

    def test_headers_do_not_depend_on_the_backend(self):
        text = '#include "tensor/dispatch.hpp"\n  if constexpr (cuda_built) f();  // a\n// cuda_built'
        listed = listed_device_sources("# lib/ops\nset(SOURCES\n  ops/a.cpp\n  ops/b.cpp)")
        self.assertEqual(listed, ["lib/ops/a.cpp", "lib/ops/b.cpp"])
        self.assertEqual(lines("lib/ops/a.cpp", text, listed), [])
        self.assertEqual(lines("lib/ops/c.cpp", text, listed), [1, 2])
        self.assertEqual(lines("lib/ops/cuda/c.cpp", text), [])
        self.assertEqual(lines("lib/ops/a.hpp", text, listed), [1, 2])
        self.assertEqual(lines("lib/plan/a.cpp", text), [1, 2])

    def test_models_know_no_ranks(self):
        self.assertEqual(lines("lib/models/a.cpp", '#include "comm/group.hpp"'), [1])
        self.assertEqual(lines("lib/models/a.cpp", "#if X\n  f(x.group.rank());\n  // MPI_Send"), [1, 2])
        self.assertEqual(lines("lib/models/a.cpp", "  MPI_Barrier(world);"), [1])
        self.assertEqual(lines("lib/layout/a.cpp", "#if X\n  f(x.group.rank());"), [])

    def test_includes_of_includes_count(self):
        texts = {"lib/plan/plan.cpp": '#include "plan/plan.hpp"',
                 "lib/plan/plan.hpp": '#include <vector>\n#include "layout/move.hpp"',
                 "lib/layout/move.hpp": '#include "layout/sharded.hpp"\n#include "plan/plan.hpp"',
                 "lib/layout/sharded.hpp": "#include <mpi.h>"}
        self.assertEqual(list(include_chains("lib/plan/plan.cpp", texts, r"mpi\.h")),
                         [["lib/plan/plan.hpp", "lib/layout/move.hpp", "lib/layout/sharded.hpp",
                           "mpi.h"]])
        self.assertEqual(list(include_chains("lib/plan/plan.cpp", texts, r"comm/.*")), [])


class Collectives(unittest.TestCase):
    def test_arguments_or_names_show_them(self):
        text = """
/// Waits. Collective.
void wait_together();
/// Adds. Collective.
void add(const comm::Group& group,
         double value);
class Clip {
 public:
  /// Not collective.
  void open();
  /// Writes it. Collective
  /// over the world.
  void write(
      int number);
};
"""
        self.assertEqual(list(check_collectives.violations("a.hpp", text)),
                         ["a.hpp:11: Clip::write is collective, which neither its name nor its "
                          "arguments show"])


if __name__ == "__main__":
    unittest.main()
