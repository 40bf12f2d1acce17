-- TPC-H at a hundredth of its scale: its keys, domains and dependent dates, with texts only as far as queries read them.
-- draw(row, column, n) is a number below n, as good as random.

-- name: region
SELECT value AS r_regionkey, ['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'][value + 1] AS r_name
FROM range(5) AS t(value);

-- name: nation
SELECT value AS n_nationkey, names[value + 1] AS n_name, regions[value + 1] AS n_regionkey
FROM range(25) AS t(value), (SELECT
    ['ALGERIA', 'ARGENTINA', 'BRAZIL', 'CANADA', 'EGYPT', 'ETHIOPIA', 'FRANCE', 'GERMANY', 'INDIA', 'INDONESIA',
     'IRAN', 'IRAQ', 'JAPAN', 'JORDAN', 'KENYA', 'MOROCCO', 'MOZAMBIQUE', 'PERU', 'CHINA', 'ROMANIA',
     'SAUDI ARABIA', 'VIETNAM', 'RUSSIA', 'UNITED KINGDOM', 'UNITED STATES'] AS names,
    [0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1] AS regions);

-- name: supplier
SELECT value + 1 AS s_suppkey, 'Supplier#' || lpad(CAST(value + 1 AS TEXT), 9, '0') AS s_name,
       'address ' || CAST(draw(value, 1, 1000000) AS TEXT) AS s_address, draw(value, 2, 25) AS s_nationkey,
       CAST(draw(value, 2, 25) + 10 AS TEXT) || '-' || CAST(draw(value, 3, 1000000) AS TEXT) AS s_phone,
       CAST((draw(value, 4, 1099999) - 99999) / 100.0 AS DECIMAL(15, 2)) AS s_acctbal,
       CASE WHEN value = 17 THEN 'sly Customer slow Complaints ' ELSE 'furiously even ' END
           || CAST(draw(value, 5, 1000000) AS TEXT) AS s_comment
FROM range(100) AS t(value);

-- name: customer
SELECT value + 1 AS c_custkey, 'Customer#' || lpad(CAST(value + 1 AS TEXT), 9, '0') AS c_name,
       'address ' || CAST(draw(value, 11, 1000000) AS TEXT) AS c_address, draw(value, 12, 25) AS c_nationkey,
       CAST(draw(value, 12, 25) + 10 AS TEXT) || '-' || CAST(draw(value, 13, 1000000) AS TEXT) AS c_phone,
       CAST((draw(value, 14, 1099999) - 99999) / 100.0 AS DECIMAL(15, 2)) AS c_acctbal,
       ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'][draw(value, 15, 5) + 1] AS c_mktsegment,
       'deposits ' || CAST(draw(value, 16, 1000000) AS TEXT) AS c_comment
FROM range(1500) AS t(value);

-- name: part
SELECT value + 1 AS p_partkey,
       words[draw(value, 21, 92) + 1] || ' ' || words[draw(value, 22, 92) + 1] || ' ' || words[draw(value, 23, 92) + 1]
           || ' ' || words[draw(value, 24, 92) + 1] || ' ' || words[draw(value, 25, 92) + 1] AS p_name,
       'Manufacturer#' || CAST(draw(value, 26, 5) + 1 AS TEXT) AS p_mfgr,
       'Brand#' || CAST(draw(value, 26, 5) + 1 AS TEXT) || CAST(draw(value, 27, 5) + 1 AS TEXT) AS p_brand,
       ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'][draw(value, 28, 6) + 1]
           || ' ' || ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'][draw(value, 29, 5) + 1]
           || ' ' || ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'][draw(value, 30, 5) + 1] AS p_type,
       CAST(draw(value, 31, 50) + 1 AS INTEGER) AS p_size,
       ['SM', 'LG', 'MED', 'JUMBO', 'WRAP'][draw(value, 32, 5) + 1]
           || ' ' || ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'][draw(value, 33, 8) + 1] AS p_container,
       CAST((90000 + (value + 1) / 10 % 20001 + 100 * ((value + 1) % 1000)) / 100.0 AS DECIMAL(15, 2)) AS p_retailprice
FROM range(2000) AS t(value), (SELECT
    ['almond', 'antique', 'aquamarine', 'azure', 'beige', 'bisque', 'black', 'blanched', 'blue', 'blush', 'brown',
     'burlywood', 'burnished', 'chartreuse', 'chiffon', 'chocolate', 'coral', 'cornflower', 'cornsilk', 'cream',
     'cyan', 'dark', 'deep', 'dim', 'dodger', 'drab', 'firebrick', 'floral', 'forest', 'frosted', 'gainsboro',
     'ghost', 'goldenrod', 'green', 'grey', 'honeydew', 'hot', 'indian', 'ivory', 'khaki', 'lace', 'lavender',
     'lawn', 'lemon', 'light', 'lime', 'linen', 'magenta', 'maroon', 'medium', 'metallic', 'midnight', 'mint',
     'misty', 'moccasin', 'navajo', 'navy', 'olive', 'orange', 'orchid', 'pale', 'papaya', 'peach', 'peru', 'pink',
     'plum', 'powder', 'puff', 'purple', 'red', 'rose', 'rosy', 'royal', 'saddle', 'salmon', 'sandy', 'seashell',
     'sienna', 'sky', 'slate', 'smoke', 'snow', 'spring', 'steel', 'tan', 'thistle', 'tomato', 'turquoise',
     'violet', 'wheat', 'white', 'yellow'] AS words);

-- name: partsupp
SELECT value / 4 + 1 AS ps_partkey,
       (value / 4 + 1 + value % 4 * (25 + value / 4 / 100)) % 100 + 1 AS ps_suppkey,
       CAST(draw(value, 41, 9999) + 1 AS INTEGER) AS ps_availqty,
       CAST((draw(value, 42, 99901) + 100) / 100.0 AS DECIMAL(15, 2)) AS ps_supplycost
FROM range(8000) AS t(value);

-- name: orders
-- Keys are eight of each 32, and a third of the customers orders nothing.
SELECT value / 8 * 32 + value % 8 + 1 AS o_orderkey,
       draw(value, 51, 500) * 3 + draw(value, 52, 2) + 1 AS o_custkey,
       CASE WHEN day < date '1995-04-15' THEN 'F' WHEN day > date '1995-06-17' THEN 'O' ELSE 'P' END AS o_orderstatus,
       CAST((draw(value, 53, 45000000) + 100000) / 100.0 AS DECIMAL(15, 2)) AS o_totalprice, day AS o_orderdate,
       ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'][draw(value, 54, 5) + 1] AS o_orderpriority,
       0 AS o_shippriority,
       CASE draw(value, 55, 80) WHEN 0 THEN 'the special final requests ' ELSE 'carefully regular ' END
           || CAST(draw(value, 56, 1000000) AS TEXT) AS o_comment
FROM (SELECT value, date '1992-01-01' + CAST(draw(value, 50, 2406) AS INTEGER) AS day FROM range(15000) AS t(value));

-- name: lineitem
-- One to seven of each order, each from one of the four suppliers of a part.
SELECT "order" / 8 * 32 + "order" % 8 + 1 AS l_orderkey, part + 1 AS l_partkey,
       (part + 1 + draw(value, 63, 4) * (25 + part / 100)) % 100 + 1 AS l_suppkey, line + 1 AS l_linenumber,
       CAST(quantity AS DECIMAL(15, 2)) AS l_quantity,
       CAST(quantity * (90000 + (part + 1) / 10 % 20001 + 100 * ((part + 1) % 1000)) / 100.0 AS DECIMAL(15, 2))
           AS l_extendedprice,
       CAST(draw(value, 65, 11) / 100.0 AS DECIMAL(15, 2)) AS l_discount,
       CAST(draw(value, 66, 9) / 100.0 AS DECIMAL(15, 2)) AS l_tax,
       CASE WHEN received > date '1995-06-17' THEN 'N' WHEN draw(value, 67, 2) = 0 THEN 'R' ELSE 'A' END AS l_returnflag,
       CASE WHEN shipped > date '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
       shipped AS l_shipdate, committed AS l_commitdate, received AS l_receiptdate,
       ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'][draw(value, 68, 4) + 1] AS l_shipinstruct,
       ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'][draw(value, 69, 7) + 1] AS l_shipmode
FROM (
    SELECT *, shipped + CAST(draw(value, 62, 30) + 1 AS INTEGER) AS received
    FROM (
        SELECT *, day + CAST(draw(value, 60, 121) + 1 AS INTEGER) AS shipped,
               day + CAST(draw(value, 61, 61) + 30 AS INTEGER) AS committed
        FROM (
            SELECT value, value / 7 AS "order", value % 7 AS line, draw(value, 59, 2000) AS part,
                   draw(value, 64, 50) + 1 AS quantity,
                   date '1992-01-01' + CAST(draw(value / 7, 50, 2406) AS INTEGER) AS day
            FROM range(105000) AS t(value) WHERE value % 7 <= draw(value / 7, 57, 7))));
