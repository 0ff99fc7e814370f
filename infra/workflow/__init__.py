"""The state machine: its definition and what is generated for it, in pure Python; only construct.py knows the CDK."""
