"""The C++ stand-in of Metal's compiler: barriers, SIMD functions, shared memory, faults it reports."""

from __future__ import annotations

import pytest
import torch

from metal_library import compile_shader

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def test_numbers_and_vectors_are_passed_as_torch_passes_them() -> None:
    library = compile_shader(
        HEAD
        + """
        template <typename T> T twice(T x) { return x + x; }
        constant float offsets[2] = {1.0f, 2.0f};
        kernel void scaled(
            device const float4* x [[buffer(0)]], device float4* out [[buffer(1)]],
            constant long& count, constant float& factor, constant long* numbers,
            uint2 i [[thread_position_in_grid]]) {
          if (i.x < uint(count))
            out[i.x] = twice(x[i.x]) * factor + float(numbers[1]) + offsets[i.y];
        }
        """
    )
    x = torch.randn(3, 4)
    out = torch.full((3, 4), torch.nan)
    library.scaled(x, out, 2, 0.5, [7, 8], threads=(3, 1), group_size=(2, 1))
    assert torch.allclose(out[:2], x[:2] + 9)
    assert out[2].isnan().all()


def test_threads_meet_at_barriers_in_any_order() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void reversed(device const int* x, device int* out,
                             uint i [[thread_position_in_threadgroup]],
                             uint n [[threads_per_threadgroup]],
                             uint g [[threadgroup_position_in_grid]]) {
          threadgroup int held[100];
          for (int round = 0; round < 3; round++) {
            held[i] = x[g * 100 + i] + round;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[(g * 3 + round) * 100 + i] = held[n - 1 - i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
          }
        }
        """
    )
    x = torch.arange(200, dtype=torch.int32)
    for _ in range(2):  # threads run in the other order
        out = torch.full((600,), -1, dtype=torch.int32)
        library.reversed(x, out, threads=200, group_size=100)
        wanted = x.view(2, 1, 100).flip(2) + torch.arange(3)[:, None]
        assert torch.equal(out.view(2, 3, 100), wanted.int())


def test_simd_functions() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void all(device const float* x, device float* out,
                        uint i [[thread_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint group [[simdgroup_index_in_threadgroup]]) {
          device float* to = out + i * 8;
          to[0] = simd_sum(x[i]);
          to[1] = simd_max(x[i]);
          to[2] = simd_min(x[i]);
          to[3] = simd_shuffle(x[i], ushort(lane ^ 3));
          to[4] = simd_shuffle_xor(x[i], 16);
          to[5] = simd_shuffle_down(x[i], 1);
          to[6] = simd_prefix_exclusive_sum(x[i]);
          to[7] = simd_broadcast_first(float(group));
        }
        """
    )
    x = torch.randn(96)
    out = torch.empty(96, 8)
    library.all(x, out, threads=96, group_size=64)
    rows, lanes = x.view(3, 32), torch.arange(32)
    found = out.view(3, 32, 8)
    assert torch.allclose(found[..., 0], rows.sum(1, keepdim=True).expand(3, 32), atol=1e-5)
    assert torch.equal(found[..., 1], rows.amax(1, keepdim=True).expand(3, 32))
    assert torch.equal(found[..., 2], rows.amin(1, keepdim=True).expand(3, 32))
    assert torch.equal(found[..., 3], rows[:, lanes ^ 3])
    assert torch.equal(found[..., 4], rows[:, lanes ^ 16])
    assert torch.equal(found[:, :31, 5], rows[:, 1:])
    assert found[:, 31, 5].isnan().all()
    assert torch.allclose(found[..., 6], rows.cumsum(1) - rows, atol=1e-5)
    assert torch.equal(found[:, 0, 7], torch.tensor([0.0, 1.0, 0.0]))


def test_matrices_of_a_simd_group() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void product(device const float* a, device const float* b, device float* out) {
          simdgroup_float8x8 x, y, sum = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
          simdgroup_load(x, a, 8);
          simdgroup_load(y, b, 8, ulong2(0, 0), true);
          simdgroup_multiply_accumulate(sum, x, y, sum);
          simdgroup_store(sum, out, 8);
        }
        """
    )
    a, b = torch.randn(2, 8, 8)
    out = torch.full((8, 8), torch.nan)
    library.product(a, b, out, threads=32, group_size=32)
    assert torch.allclose(out, 1 + a @ b.T, atol=1e-5)


def test_atomic_numbers_and_halves() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void counted(device atomic_uint* count, device const half* x, device half* out,
                            uint i [[thread_position_in_grid]]) {
          uint before = atomic_fetch_add_explicit(count, 2u, memory_order_relaxed);
          out[before / 2] = half(float(x[before / 2]) * 3.0f);
        }
        """
    )
    count, x = torch.zeros(1, dtype=torch.int32), torch.randn(50).half()
    out = torch.empty(50, dtype=torch.half)
    library.counted(count, x, out, threads=50, group_size=32)
    assert count.item() == 100
    assert torch.equal(out, x * 3)


def test_memory_of_a_group_starts_undefined() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void kept(device float* out, uint i [[thread_position_in_grid]]) {
          threadgroup float held[2];
          out[i] = held[0];
          held[0] = 5.0f;
        }
        """
    )
    out = torch.zeros(3)
    library.kept(out, threads=3, group_size=1)
    assert out.isnan().all()


def test_a_barrier_that_some_threads_miss_is_reported() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void missed(device float* out, constant long& last,
                           uint i [[thread_position_in_grid]]) {
          if (i < uint(last))
            threadgroup_barrier(mem_flags::mem_threadgroup);
          out[i] = simd_sum(1.0f);
        }
        """
    )
    out = torch.zeros(64)
    with pytest.raises(RuntimeError, match=r"never come|at the same time"):
        library.missed(out, 40, threads=64, group_size=64)
    library.missed(out, 64, threads=64, group_size=64)
    assert torch.equal(out, torch.full((64,), 32.0))


def test_wrong_calls_are_refused() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void one(device float* out, constant float& x, constant long& n,
                        uint i [[thread_position_in_grid]]) { out[i] = x + float(n); }
        """
    )
    out = torch.zeros(4)
    library.one(out, 1.5, 2)
    assert torch.equal(out, torch.full((4,), 3.5))
    with pytest.raises(TypeError, match="2 arguments for 3"):
        library.one(out, 1.5)
    with pytest.raises(TypeError, match="x is of float, not int64 1"):
        library.one(out, 1, 2)
    with pytest.raises(TypeError, match=r"n is of long, not float 2\.0"):
        library.one(out, 1.0, 2.0)
    with pytest.raises(TypeError, match=r"out is of torch\.float64, not float"):
        library.one(out.double(), 1.0, 2)
    with pytest.raises(AttributeError, match="no kernel 'two'"):
        library.two(out)


def test_a_fault_in_the_text_is_reported_by_its_line() -> None:
    with pytest.raises(RuntimeError, match="shader:5"):
        compile_shader(HEAD + "kernel void one(device float* out) {\n  /*\n*/ out[0] = wrong;\n}")


@pytest.mark.parametrize("line", ["const float* from = x;", "thread float& y = z; uchar4 *w;"])
def test_a_pointer_without_address_space_is_refused(line: str) -> None:
    text = f"kernel void one(device float* x) {{\n  float z; {line}\n}}"
    with pytest.raises(RuntimeError, match="shader:4: a pointer without address space"):
        compile_shader(HEAD + text)
    compile_shader(HEAD + text.replace(line, "device const float* from = x; z = z * z;"))


def test_access_outside_of_a_tensor_is_reported() -> None:
    library = compile_shader(
        HEAD
        + """
        kernel void moved(device const float* x, device float* out, constant long& by,
                          uint i [[thread_position_in_grid]]) {
          out[long(i) + by] = x[long(i) + by] + 1.0f;
        }
        """
    )
    around = torch.arange(12.0)
    x, out = around[4:8], torch.zeros(4)
    library.moved(x, out, 0, threads=4, group_size=4)
    assert torch.equal(out, x + 1)
    library.moved(x, x, 0, threads=4, group_size=4)  # a tensor may be given twice
    with pytest.raises(RuntimeError, match="beyond the end of a tensor"):
        library.moved(x, out, 4000, threads=4, group_size=4)
    with pytest.raises(RuntimeError, match="beyond the end of a tensor"):
        library.moved(x, out, 1, threads=4, group_size=4)
    with pytest.raises(RuntimeError, match="writes beside a tensor"):
        library.moved(x, out, -1, threads=4, group_size=4)
    wanted = torch.arange(12.0)
    wanted[4:8] += 1
    assert torch.equal(around, wanted)
    library.moved(x, out, 0, threads=4, group_size=4)


def test_limits_of_metal_are_kept() -> None:
    buffers = ", ".join(f"device float* x{number}" for number in range(32))
    library = compile_shader(
        HEAD
        + f"kernel void many({buffers}) {{ x0[0] = 1.0f; }}"
        + """
        kernel void large(device float* out, uint i [[thread_position_in_grid]]) {
          threadgroup float held[8193];
          held[i] = 1.0f;
          out[i] = held[i];
        }
        """
    )
    out = torch.zeros(1)
    with pytest.raises(TypeError, match="Metal has 31 buffers"):
        library.many(*[out] * 32)
    with pytest.raises(RuntimeError, match="more than 32 KB"):
        library.large(out, threads=1, group_size=1)
