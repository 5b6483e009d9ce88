#pragma once
// The handles and codes of cuBLAS that LibTorch's headers name. Nothing of ours uses them.

typedef struct cublasContext* cublasHandle_t;
enum cublasStatus_t : int;
