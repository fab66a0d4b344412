"""The data pipeline: Spark jobs that make knowledge of what the broker recorded (docs/pipeline.md).

The only package that imports pyspark. A transformation is a plain function from DataFrame to
DataFrame; a job reads, transforms and writes.
"""
