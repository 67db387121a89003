"""The API of Hajob: the HATrainingJob as Pydantic models, its conditions, and the CRD made from them."""
