-- cases: gemm_f64_512 gemm_f64_1000 gemm_f64_2048 gemm_f64_4096 gemm_f32_512 gemm_f32_1000 gemm_f32_2048 gemm_f32_4096 gemm_f32_8192
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX b FROM '{data}/{case}.b.npy';
-- timed
CREATE OR REPLACE MATRIX c = a @ b;
-- checksum dense c
