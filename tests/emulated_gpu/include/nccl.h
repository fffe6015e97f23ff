#pragma once
// Of NCCL only its version so far.
enum ncclResult_t { ncclSuccess };

ncclResult_t ncclGetVersion(int* version);
