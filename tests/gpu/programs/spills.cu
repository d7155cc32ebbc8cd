// Kernels whose instructions per source line, spills and course over time are known. A mark at the end of a line names
// what is there: `load`, `keep` and `spill`.

extern "C" __global__ void __launch_bounds__(256) spills(float *out, const float *in, int steps, int size)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    float kept[128];
    for (int slot = 0; slot < 128; slot++) kept[slot] = thread;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        float value = in[(thread + step * 256) % size];  // load
        kept[(thread + step) & 127] += value;  // keep
    }
    out[thread] = kept[thread & 127];
}

#define ALL(D) D(0) D(1) D(2) D(3) D(4) D(5) D(6) D(7) D(8) D(9) D(10) D(11) D(12) D(13) D(14) D(15) D(16) D(17) D(18) \
    D(19) D(20) D(21) D(22) D(23) D(24) D(25) D(26) D(27) D(28) D(29) D(30) D(31) D(32) D(33) D(34) D(35) D(36) D(37) \
    D(38) D(39) D(40) D(41) D(42) D(43) D(44) D(45) D(46) D(47)
#define READ(N) float v##N = in[thread + N * 1024];
#define ADD(N) sum = fmaf(sum, 0.5f, v##N);
#define USE(N) rest = fmaf(v##N, sum, rest);

// With 32 registers for each of 1024 threads, its 48 values do not fit.
extern "C" __global__ void __launch_bounds__(1024, 2) tight(float *out, float *in)
{
    int thread = threadIdx.x;
    float sum = 0, rest = 0;
    ALL(READ) ALL(ADD) out[thread] = sum; __threadfence(); ALL(USE) out[thread + 1024] = rest;  // spill
}

__device__ unsigned long long now_ns()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

// Reads DRAM for one half of its time, and computes in registers for the other.
extern "C" __global__ void __launch_bounds__(1024) phases(float4 *out, const float4 *in, int each_ns, int size)
{
    unsigned long long start = now_ns();
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int at = thread; now_ns() < start + each_ns; at = (at + 4 * threads) % size) {
        for (int more = 0; more < 4; more++) {
            float4 one = __ldcs(in + (at + more * threads) % size);
            sum.x += one.x; sum.y += one.y; sum.z += one.z; sum.w += one.w;
        }
    }
    while (now_ns() < start + 2 * (unsigned long long)each_ns) {
        for (int turn = 0; turn < 64; turn++) sum.x = fmaf(sum.x, 0.5f, sum.y);
    }
    out[thread] = sum;
}
