-- cases: rw_trace_ab
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX b FROM '{data}/{case}.b.npy';
-- timed
CREATE OR REPLACE MATRIX r = trace(a @ b);
-- checksum dense r
